//! Joins: start one, attach steps, look why it waits, cancel it.

use axum::Json;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use postroom::{
    Attached, Join, JoinId, JoinMember, JoinStatus, MessageId, NewJoin, Postroom, StepStatus,
    WorkItemId,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::cursor::{Cursor, Of, Order, page};
use super::read::{Body, Id, Query};
use super::shown::{Page, StateName};
use super::value::{Count, Limit, Name, Reference, Time};
use super::{Store, TAG_JOINS, room};
use crate::http::{App, Caller, Operator, Problem, Viewer};

/// How many missing steps are looked up one by one.
const LOOKED_UP: usize = 20;

/// A join to start.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"expected_steps": 3, "grouping_key": "customer-7"}))]
#[schema(as = NewJoin)]
pub(super) struct JoinToStart {
    /// How many steps it waits for.
    expected_steps: Count,
    /// What it belongs to, such as a customer.
    #[schema(max_length = 255, pattern = "^[^\\u0000]*$")]
    grouping_key: Option<String>,
    /// Anything you want to keep with it.
    #[schema(pattern = "^[^\\u0000]*$")]
    metadata: Option<String>,
}

/// A join.
#[derive(Serialize, ToSchema)]
#[schema(as = Join)]
pub(super) struct JoinShown {
    id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    grouping_key: Option<String>,
    status: JoinStatusName,
    expected_steps: u32,
    completed_steps: u32,
    failed_steps: u32,
    created_at: Time,
    last_updated_at: Time,
    /// Absent when the caller may not see payloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<String>,
    /// Whether the metadata is left out because the caller may not see payloads.
    payload_hidden: bool,
}

/// Where a join stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = JoinStatus)]
enum JoinStatusName {
    Pending,
    Completed,
    Failed,
    Cancelled,
}

impl JoinShown {
    fn new(join: Join, caller: &Caller) -> Self {
        Self {
            id: join.id.into(),
            grouping_key: join.grouping_key,
            status: match join.status {
                JoinStatus::Pending => JoinStatusName::Pending,
                JoinStatus::Completed => JoinStatusName::Completed,
                JoinStatus::Failed => JoinStatusName::Failed,
                JoinStatus::Cancelled => JoinStatusName::Cancelled,
            },
            expected_steps: join.expected_steps,
            completed_steps: join.completed_steps,
            failed_steps: join.failed_steps,
            created_at: Time(join.created_at),
            last_updated_at: Time(join.last_updated_at),
            metadata: join.metadata.filter(|_| caller.sees_payloads),
            payload_hidden: !caller.sees_payloads,
        }
    }
}

/// Start a join
#[utoipa::path(
    post, path = "/v1/joins", tag = TAG_JOINS, operation_id = "startJoin",
    params(Store),
    request_body = JoinToStart,
    responses((status = 201, description = "It has started", body = JoinShown, headers(("Location" = String, description = "Where the join is"))))
)]
pub(super) async fn start(
    Operator(caller): Operator,
    Shared(app): Shared<App>,
    Query(store): Query<Store>,
    Body(body): Body<JoinToStart>,
) -> Result<Response, Problem> {
    let mut join = NewJoin::new(body.expected_steps.0);
    if let Some(key) = body.grouping_key {
        join = join.grouping_key(key);
    }
    if let Some(metadata) = body.metadata {
        join = join.metadata(metadata);
    }
    let room = store.room(&app)?;
    let id = room.joins().start(&join).await?;
    let place = format!("/v1/joins/{id}{}", store.suffix());
    let join = JoinShown::new(find(&room, id).await?, &caller);
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(join)).into_response())
}

async fn find(room: &Postroom, id: JoinId) -> Result<Join, Problem> {
    let join = room.joins().get(id).await?;
    join.ok_or_else(|| Problem::not_found("join"))
}

/// A message to attach.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    message_id: Reference,
}

/// What became of the message when it was attached.
#[derive(Serialize, ToSchema)]
pub(super) struct StepAttached {
    message: MessageWas,
    join: JoinShown,
}

/// Where the message stood.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum MessageWas {
    /// It is still to be handled, and will count then.
    Pending,
    /// It was done before, and is counted now.
    AlreadyDone,
    /// It was dead before, and is counted now.
    AlreadyFailed,
    /// The outbox does not know it, or not yet.
    Unknown,
}

/// Attach a step to a join
///
/// Attaching at the enqueue (`join_id`) is the better way. Doing it twice changes nothing.
#[utoipa::path(
    post, path = "/v1/joins/{id}/members", tag = TAG_JOINS, operation_id = "attachToJoin",
    params(("id" = Uuid, Path, description = "The join"), Store),
    request_body = Step,
    responses((status = 200, description = "It is a step of the join", body = StepAttached))
)]
pub(super) async fn attach(
    Operator(caller): Operator,
    Shared(app): Shared<App>,
    Id(id): Id,
    Query(store): Query<Store>,
    Body(step): Body<Step>,
) -> Result<Json<StepAttached>, Problem> {
    let (room, id) = (store.room(&app)?, JoinId::from_uuid(id));
    let joins = room.joins();
    let message = match joins
        .attach(id, MessageId::from_uuid(step.message_id.0))
        .await?
    {
        Attached::Pending => MessageWas::Pending,
        Attached::MessageAlreadyDone => MessageWas::AlreadyDone,
        Attached::MessageAlreadyFailed => MessageWas::AlreadyFailed,
        Attached::UnknownMessage => MessageWas::Unknown,
    };
    if matches!(message, MessageWas::AlreadyDone | MessageWas::AlreadyFailed) {
        joins.reconcile(id).await?;
    }
    let join = JoinShown::new(find(&room, id).await?, &caller);
    Ok(Json(StepAttached { message, join }))
}

/// Which joins to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    /// What the joins belong to; without it all joins are listed, newest first.
    #[param(inline)]
    grouping_key: Option<Name>,
    #[param(inline)]
    limit: Option<Limit>,
    #[param(inline)]
    cursor: Option<Cursor>,
    /// The store; the first one by default.
    #[param(inline)]
    store: Option<Name>,
}

/// List joins: those of a grouping key, or all
#[utoipa::path(
    get, path = "/v1/joins", tag = TAG_JOINS, operation_id = "listJoins",
    params(Search),
    responses((status = 200, description = "A page of joins: of a grouping key oldest first, else newest first", body = Page<JoinShown>))
)]
pub(super) async fn list(
    Viewer(caller): Viewer,
    Shared(app): Shared<App>,
    Query(search): Query<Search>,
) -> Result<Json<Page<JoinShown>>, Problem> {
    let Limit(limit) = search.limit.unwrap_or(Limit::DEFAULT);
    let order = match &search.grouping_key {
        Some(_) => Order::Oldest,
        None => Order::Newest,
    };
    let after = search.cursor.as_ref();
    let after = after
        .map(|cursor| cursor.read(Of::Joins, order))
        .transpose()?;
    let after = after.map(JoinId::from_uuid);
    let joins = room(&app, search.store.as_ref())?.joins();
    let found = match &search.grouping_key {
        Some(key) => joins.list(&key.0, after, limit + 1).await?,
        None => joins.recent(after, limit + 1).await?,
    };
    let (found, next) = page(found, limit, |last| {
        Cursor::after(Of::Joins, order, last.id.into())
    });
    let items = found
        .into_iter()
        .map(|join| JoinShown::new(join, &caller))
        .collect();
    Ok(Json(Page { items, next }))
}

fn place(cursor: Option<&Cursor>, of: Of) -> Result<Option<Uuid>, Problem> {
    cursor
        .map(|cursor| cursor.read(of, Order::Oldest))
        .transpose()
}

/// Which steps of a join to show.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Steps {
    #[param(inline)]
    limit: Option<Limit>,
    #[param(inline)]
    cursor: Option<Cursor>,
    /// The store; the first one by default.
    #[param(inline)]
    store: Option<Name>,
}

/// A join with its steps.
#[derive(Serialize, ToSchema)]
pub(super) struct JoinInFull {
    #[serde(flatten)]
    join: JoinShown,
    members: Page<Member>,
    /// Absent once the join has finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<Waiting>,
}

/// A step of a join.
#[derive(Serialize, ToSchema)]
struct Member {
    message_id: Uuid,
    status: StepStatusName,
    attached_at: Time,
}

/// Where a step stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = StepStatus)]
enum StepStatusName {
    Pending,
    Completed,
    Failed,
}

impl From<&JoinMember> for Member {
    fn from(member: &JoinMember) -> Self {
        Self {
            message_id: member.message_id.into(),
            status: match member.status {
                StepStatus::Pending => StepStatusName::Pending,
                StepStatus::Completed => StepStatusName::Completed,
                StepStatus::Failed => StepStatusName::Failed,
            },
            attached_at: Time(member.created_at),
        }
    }
}

/// Why a join is waiting.
#[derive(Serialize, ToSchema)]
struct Waiting {
    /// In one sentence.
    #[schema(example = "2 of 3 steps are missing; 1 of them was never attached")]
    why: String,
    /// Steps that are not in.
    missing: u32,
    /// Steps that no message was attached for, as far as the members on this page tell.
    not_attached: u32,
    /// The first messages that it waits for.
    messages: Vec<WaitedFor>,
}

/// A message that a join waits for.
#[derive(Serialize, ToSchema)]
struct WaitedFor {
    message_id: Uuid,
    /// Absent when the outbox has no message under this id.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<StateName>,
    attempt_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

/// Look at a join
///
/// With its steps, and why it is waiting.
#[utoipa::path(
    get, path = "/v1/joins/{id}", tag = TAG_JOINS, operation_id = "getJoin",
    params(("id" = Uuid, Path, description = "The join"), Steps),
    responses((status = 200, description = "The join", body = JoinInFull))
)]
pub(super) async fn show(
    Viewer(caller): Viewer,
    Shared(app): Shared<App>,
    Id(id): Id,
    Query(steps): Query<Steps>,
) -> Result<Json<JoinInFull>, Problem> {
    let Limit(limit) = steps.limit.unwrap_or(Limit::DEFAULT);
    let after = place(steps.cursor.as_ref(), Of::Members)?.map(MessageId::from_uuid);
    let room = room(&app, steps.store.as_ref())?;
    let id = JoinId::from_uuid(id);
    let join = find(&room, id).await?;
    let found = room.joins().members(id, after, limit + 1).await?;
    let (found, next) = page(found, limit, |last| {
        Cursor::after(Of::Members, Order::Oldest, last.message_id.into())
    });
    let waiting = match join.status {
        JoinStatus::Pending => Some(waiting(&room, &join, &found).await?),
        _ => None,
    };
    let members = found.iter().map(Member::from).collect();
    Ok(Json(JoinInFull {
        join: JoinShown::new(join, &caller),
        members: Page {
            items: members,
            next,
        },
        waiting,
    }))
}

async fn waiting(room: &Postroom, join: &Join, members: &[JoinMember]) -> Result<Waiting, Problem> {
    let missing = join
        .expected_steps
        .saturating_sub(join.completed_steps + join.failed_steps);
    let pending: Vec<&JoinMember> = members
        .iter()
        .filter(|member| member.status == StepStatus::Pending)
        .collect();
    let attached = u32::try_from(pending.len()).unwrap_or(u32::MAX);
    let not_attached = missing.saturating_sub(attached);
    let mut messages = Vec::new();
    for member in pending.iter().take(LOOKED_UP) {
        let id = member.message_id.as_uuid();
        // The work item has the message's id, unless the sender has chosen another one.
        let message = room.outbox().get(WorkItemId::from_uuid(id)).await?;
        let progress = message.as_ref().map(|message| &message.progress);
        messages.push(WaitedFor {
            message_id: id,
            state: message.as_ref().map(|message| message.state.into()),
            attempt_count: progress.map_or(0, |progress| progress.attempt_count),
            next_attempt_at: progress
                .and_then(|progress| progress.next_attempt_at)
                .map(Time),
            last_error: progress.and_then(|progress| progress.last_error.clone()),
        });
    }
    let mut why = format!("{missing} of {} steps are missing", join.expected_steps);
    if not_attached > 0 {
        why = format!("{why}; no message was attached yet for {not_attached} of them");
    }
    let retried = messages
        .iter()
        .filter(|message| message.last_error.is_some())
        .count();
    if retried > 0 {
        why = format!("{why}; {retried} failed and will be tried again");
    }
    Ok(Waiting {
        why,
        missing,
        not_attached,
        messages,
    })
}

/// What became of a join that was to be cancelled.
#[derive(Serialize, ToSchema)]
pub(super) struct JoinCancelled {
    /// Whether it was still pending; if not, nothing has changed.
    cancelled: bool,
    join: JoinShown,
}

/// Cancel a join
///
/// Its counters freeze, and nothing goes on after it.
#[utoipa::path(
    post, path = "/v1/joins/{id}/cancel", tag = TAG_JOINS, operation_id = "cancelJoin",
    params(("id" = Uuid, Path, description = "The join"), Store),
    responses((status = 200, description = "What became of it", body = JoinCancelled))
)]
pub(super) async fn cancel(
    Operator(caller): Operator,
    Shared(app): Shared<App>,
    Id(id): Id,
    Query(store): Query<Store>,
) -> Result<Json<JoinCancelled>, Problem> {
    let (room, id) = (store.room(&app)?, JoinId::from_uuid(id));
    let cancelled = room.joins().cancel(id).await?;
    let join = JoinShown::new(find(&room, id).await?, &caller);
    Ok(Json(JoinCancelled { cancelled, join }))
}
