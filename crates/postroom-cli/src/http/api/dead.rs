//! Dead letters: look at them, try them again, delete them.

use std::future::Future;
use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use postroom::{DeadFilter, List, Outbox, State, WorkItemId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::cursor::{Cursor, Of, Order, page};
use super::read::{Body, Query};
use super::shown::{Message, Page};
use super::value::{Age, Limit, Name, Reference};
use super::{Store, TAG_DEAD, audit, room};
use crate::http::{Admin, App, Caller, Operator, Problem, Viewer};

/// Messages that are replayed or purged in one transaction, and named in one request.
pub(super) const AT_ONCE: usize = 1_000;

/// What to look for.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    /// Only messages of this topic.
    #[param(inline)]
    topic: Option<Name>,
    /// Which come first.
    #[param(inline)]
    order: Option<Order>,
    #[param(inline)]
    limit: Option<Limit>,
    #[param(inline)]
    cursor: Option<Cursor>,
    /// The store; the first one by default.
    #[param(inline)]
    store: Option<Name>,
}

/// List dead letters
#[utoipa::path(
    get, path = "/v1/dead", tag = TAG_DEAD, operation_id = "listDead",
    params(Search),
    responses((status = 200, description = "A page of dead messages", body = Page<Message>))
)]
pub(super) async fn list(
    Viewer(caller): Viewer,
    Shared(app): Shared<App>,
    Query(search): Query<Search>,
) -> Result<Json<Page<Message>>, Problem> {
    let Limit(limit) = search.limit.unwrap_or(Limit::DEFAULT);
    let order = search.order.unwrap_or_default();
    let mut list = List::new(State::Dead).limit(limit + 1);
    if let Some(topic) = &search.topic {
        list = list.topic(&topic.0);
    }
    if order == Order::Newest {
        list = list.newest_first();
    }
    if let Some(cursor) = &search.cursor {
        list = list.after(WorkItemId::from_uuid(cursor.read(Of::Dead, order)?));
    }
    let room = room(&app, search.store.as_ref())?;
    let (found, next) = page(room.outbox().list(&list).await?, limit, |last| {
        Cursor::after(Of::Dead, order, last.id.into())
    });
    let items = found
        .into_iter()
        .map(|message| Message::new(message, &caller))
        .collect();
    Ok(Json(Page { items, next }))
}

/// Which dead messages: those with these ids, or all that have been dead for some time (`0s` for all),
/// perhaps of one topic only.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"older_than": "0s", "topic": "order.created", "dry_run": true}))]
pub(super) struct DeadSelection {
    #[schema(min_items = 1, max_items = 1000)]
    ids: Option<Vec<Reference>>,
    older_than: Option<Age>,
    topic: Option<Name>,
    /// Changes nothing, and says what would be changed.
    #[serde(default)]
    dry_run: bool,
}

/// What was changed, or would have been.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Touched {
    /// Whether this was only asked for, and nothing was changed.
    dry_run: bool,
    /// How many messages.
    count: u64,
    /// Which of the ids that were given. A purge only counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<Vec<Uuid>>,
}

/// Which messages an action is about.
#[derive(Clone)]
enum Chosen {
    Ids(Vec<WorkItemId>),
    Matching(DeadFilter, String),
}

impl DeadSelection {
    fn read(self) -> Result<(Chosen, bool), Problem> {
        let unprocessable =
            |text, param| Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text).param(param));
        let chosen = match (self.ids, self.older_than, self.topic) {
            (Some(_), Some(_), _) => {
                return unprocessable("give `ids` or `older_than`, not both", "older_than");
            }
            (Some(_), None, Some(_)) => {
                return unprocessable("`topic` goes with `older_than`, not with `ids`", "topic");
            }
            (None, None, _) => {
                return unprocessable("give `ids`, or `older_than`: 0s means all", "ids");
            }
            (Some(ids), None, None) if ids.is_empty() || ids.len() > AT_ONCE => {
                return Err(Problem::bad(
                    "ids",
                    format!("expected 1 to {AT_ONCE} ids, got {}", ids.len()),
                ));
            }
            (Some(ids), None, None) => {
                let mut ids: Vec<_> = ids.iter().map(|id| WorkItemId::from_uuid(id.0)).collect();
                ids.sort();
                ids.dedup();
                Chosen::Ids(ids)
            }
            (None, Some(Age(age)), topic) => {
                let filter = DeadFilter::all().older_than(age);
                let subject = format!("older_than={}s", age.as_secs());
                match topic {
                    None => Chosen::Matching(filter, subject),
                    Some(Name(topic)) => {
                        let subject = format!("topic={topic} {subject}");
                        Chosen::Matching(filter.topic(topic), subject)
                    }
                }
            }
        };
        Ok((chosen, self.dry_run))
    }
}

impl Chosen {
    /// Those that were chosen by their ids.
    fn named(&self) -> Vec<WorkItemId> {
        match self {
            Self::Ids(ids) => ids.clone(),
            Self::Matching(..) => Vec::new(),
        }
    }

    /// For the audit trail: what it was about, and how that was chosen.
    fn described(&self) -> (String, Option<String>) {
        match self {
            Self::Ids(ids) if ids.len() == 1 => (ids[0].to_string(), None),
            Self::Ids(ids) => {
                let all: Vec<String> = ids.iter().map(ToString::to_string).collect();
                (format!("{} ids", ids.len()), Some(all.join(" ")))
            }
            Self::Matching(_, subject) => (subject.clone(), None),
        }
    }
}

/// Replay dead letters
///
/// Makes them ready again, with a fresh budget of attempts.
#[utoipa::path(
    post, path = "/v1/dead/replay", tag = TAG_DEAD, operation_id = "replayDead",
    params(Store),
    request_body = DeadSelection,
    responses((status = 200, description = "What was replayed, or would be", body = Touched))
)]
pub(super) async fn replay(
    Operator(caller): Operator,
    Shared(app): Shared<App>,
    Query(store): Query<Store>,
    Body(selection): Body<DeadSelection>,
) -> Result<Json<Touched>, Problem> {
    act(Action::Replay, caller, app, store, selection).await
}

/// Purge dead letters
///
/// Deletes them for good.
#[utoipa::path(
    post, path = "/v1/dead/purge", tag = TAG_DEAD, operation_id = "purgeDead",
    params(Store),
    request_body = DeadSelection,
    responses((status = 200, description = "What was deleted, or would be", body = Touched))
)]
pub(super) async fn purge(
    Admin(caller): Admin,
    Shared(app): Shared<App>,
    Query(store): Query<Store>,
    Body(selection): Body<DeadSelection>,
) -> Result<Json<Touched>, Problem> {
    act(Action::Purge, caller, app, store, selection).await
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Replay,
    Purge,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Replay => "dead.replay",
            Self::Purge => "dead.purge",
        }
    }
}

async fn act(
    action: Action,
    caller: Arc<Caller>,
    app: App,
    store: Store,
    selection: DeadSelection,
) -> Result<Json<Touched>, Problem> {
    let (chosen, dry_run) = selection.read()?;
    let room = store.room(&app)?;
    let outbox = room.outbox();
    if dry_run {
        return foresee(&outbox, chosen).await.map(Json);
    }
    to_the_end(async move {
        let (subject, detail) = chosen.described();
        let named = chosen.named();
        let touched = touch(action, &outbox, chosen).await?;
        let (action, count) = (action.name(), touched.count);
        if count > 0 && named.len() as u64 == count {
            // Each by its name, so that it is in the message's own history.
            for id in named {
                audit::record(&room, &caller, action, &id.to_string(), 1, None).await?;
            }
        } else {
            audit::record(&room, &caller, action, &subject, count, detail).await?;
        }
        Ok(Json(touched))
    })
    .await
}

/// An action goes on when its caller goes away: what was done must be written down.
pub(super) async fn to_the_end<T: Send + 'static>(
    action: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    tokio::spawn(action).await.unwrap_or_else(|_| {
        Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the action broke off",
        ))
    })
}

async fn foresee(outbox: &Outbox, chosen: Chosen) -> Result<Touched, Problem> {
    let (count, ids) = match chosen {
        Chosen::Matching(filter, _) => (outbox.count_dead(&filter).await?, None),
        Chosen::Ids(ids) => {
            let mut dead = Vec::new();
            for id in ids {
                let message = outbox.get(id).await?;
                if message.is_some_and(|message| message.state == State::Dead) {
                    dead.push(Uuid::from(id));
                }
            }
            (dead.len() as u64, Some(dead))
        }
    };
    Ok(Touched {
        dry_run: true,
        count,
        ids,
    })
}

async fn touch(action: Action, outbox: &Outbox, chosen: Chosen) -> Result<Touched, Problem> {
    let (count, ids) = match (action, chosen) {
        (Action::Replay, Chosen::Matching(filter, _)) => {
            (outbox.replay_matching(&filter).await?, None)
        }
        (Action::Purge, Chosen::Matching(filter, _)) => {
            (outbox.purge_matching(&filter).await?, None)
        }
        (Action::Purge, Chosen::Ids(ids)) => (outbox.purge(&ids).await?, None),
        (Action::Replay, Chosen::Ids(ids)) => {
            let replayed = outbox.replay(&ids).await?;
            let ids = replayed.into_iter().map(Uuid::from).collect::<Vec<_>>();
            (ids.len() as u64, Some(ids))
        }
    };
    Ok(Touched {
        dry_run: false,
        count,
        ids,
    })
}
