//! Joins: how far each is, and why one still waits.

use std::collections::BTreeMap;

use askama::Template;
use askama::filters::HtmlSafe;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use futures_util::future::try_join_all;
use postroom::{
    Join, JoinId, JoinMember, JoinStatus, OutboxMessage, State, StepStatus, WorkItemId,
};

use super::fault::Fault;
use super::form::Fields;
use super::frame::{Frame, Place, Visitor, html};
use super::lookup;
use super::pager::Pager;
use super::shown::{Standing, When, counted, grouped};
use crate::config::Role;

/// So many steps are shown, the unfinished ones with where their message stands.
const MEMBERS: u32 = 200;

#[derive(Template)]
#[template(path = "joins.html")]
struct Joins {
    frame: Frame,
    key: String,
    rows: Vec<Row>,
    pager: Pager,
}

struct Row {
    address: String,
    id: String,
    key: String,
    status: Standing,
    bar: Bar,
    created: When,
    updated: When,
}

/// How many of the expected steps are in.
#[derive(Template)]
#[template(path = "bar.html")]
struct Bar {
    completed: u32,
    failed: u32,
    expected: u32,
    words: String,
    /// Widths of a hundred.
    good: f64,
    bad: f64,
}

impl HtmlSafe for Bar {}

impl Bar {
    fn new(join: &Join) -> Self {
        let share = |steps: u32| 100.0 * f64::from(steps) / f64::from(join.expected_steps.max(1));
        let failed = match join.failed_steps {
            0 => String::new(),
            failed => format!(", {} failed", grouped(failed)),
        };
        Self {
            completed: join.completed_steps,
            failed: join.failed_steps,
            expected: join.expected_steps,
            words: format!(
                "{} of {} completed{failed}",
                grouped(join.completed_steps),
                grouped(join.expected_steps)
            ),
            good: share(join.completed_steps),
            bad: share(join.failed_steps),
        }
    }
}

/// GET /joins
pub(super) async fn list(visitor: Visitor, fields: Fields) -> Result<Response, Fault> {
    let key = fields.filled("key");
    let after = match fields.filled("after") {
        None => None,
        Some(after) => Some(after.parse().map_err(|_| Fault::not_found("page"))?),
    };
    let page = lookup::joins(&visitor.room()?, key, after).await?;
    let rows = page.rows.into_iter().map(|join| Row {
        address: visitor.at(&format!("/joins/{}", join.id)),
        id: join.id.to_string(),
        status: join.status.into(),
        bar: Bar::new(&join),
        created: join.created_at.into(),
        updated: join.last_updated_at.into(),
        key: join.grouping_key.unwrap_or_default(),
    });
    Ok(html(&Joins {
        frame: visitor.frame("Joins", Place::Joins),
        key: key.unwrap_or_default().to_owned(),
        rows: rows.collect(),
        pager: Pager::new(&visitor, &fields, "/joins", &["key"], page.next),
    }))
}

#[derive(Template)]
#[template(path = "join.html")]
struct JoinPage {
    frame: Frame,
    join: Join,
    status: Standing,
    bar: Bar,
    created: When,
    updated: When,
    /// `None` when it is hidden, or there is none.
    metadata: Option<String>,
    is_metadata_hidden: bool,
    reasons: Vec<String>,
    members: Vec<MemberRow>,
    is_cut: bool,
    may_cancel: bool,
    cancel: String,
}

struct MemberRow {
    id: String,
    address: String,
    status: Standing,
    topic: String,
    state: Option<Standing>,
    error: String,
    attached: When,
}

/// GET /joins/{id}
pub(super) async fn page(
    visitor: Visitor,
    Path(id): Path<String>,
    fields: Fields,
) -> Result<Response, Fault> {
    let id: JoinId = id.parse().map_err(|_| Fault::not_found("join"))?;
    let room = visitor.room()?;
    let join = room.joins().get(id).await?;
    let join = join.ok_or_else(|| Fault::not_found("join"))?;
    let members = room.joins().members(id, None, MEMBERS).await?;
    let outbox = room.outbox();
    let messages = members.iter().map(|member| {
        let outbox = outbox.clone();
        // The message id is the work item id unless its sender chose another.
        let id = WorkItemId::from(member.message_id.as_uuid());
        async move { outbox.get(id).await }
    });
    let messages = try_join_all(messages).await?;
    let steps: Vec<_> = members.into_iter().zip(messages).collect();
    let is_pending = join.status == JoinStatus::Pending;
    let is_cut = steps.len() == usize::try_from(MEMBERS).unwrap_or(usize::MAX);
    let reasons = if is_pending {
        reasons(&join, &steps, is_cut)
    } else {
        Vec::new()
    };
    let metadata = join.metadata.clone().filter(|text| !text.is_empty());
    let visible = visitor.caller.sees_payloads;
    let notice = fields
        .filled("cancelled")
        .map(|_| "Cancelled: whoever waited for it has been woken.".to_owned());
    Ok(html(&JoinPage {
        frame: visitor
            .frame(format!("Join {id}"), Place::Joins)
            .notice(notice),
        status: join.status.into(),
        bar: Bar::new(&join),
        created: join.created_at.into(),
        updated: join.last_updated_at.into(),
        is_metadata_hidden: metadata.is_some() && !visible,
        metadata: metadata.filter(|_| visible),
        reasons,
        members: steps
            .into_iter()
            .map(|step| MemberRow::new(step, &visitor))
            .collect(),
        is_cut,
        may_cancel: is_pending && visitor.may(Role::Operator),
        cancel: visitor.at(&format!("/joins/{id}/cancel")),
        join,
    }))
}

impl MemberRow {
    fn new((member, message): (JoinMember, Option<OutboxMessage>), visitor: &Visitor) -> Self {
        Self {
            id: member.message_id.to_string(),
            address: visitor.at(&format!("/messages/{}", member.message_id)),
            status: member.status.into(),
            state: message.as_ref().map(|message| message.state.into()),
            attached: member.created_at.into(),
            topic: message
                .as_ref()
                .map(|message| message.topic.clone())
                .unwrap_or_default(),
            error: message
                .and_then(|message| message.progress.last_error)
                .unwrap_or_default(),
        }
    }
}

type Step = (JoinMember, Option<OutboxMessage>);

/// Why a join still waits: what is not settled, and where it stands.
fn reasons(join: &Join, steps: &[Step], is_cut: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    let attached = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    if let Some(missing @ 1..) = join.expected_steps.checked_sub(attached)
        && !is_cut
    {
        let verb = if missing == 1 { "has" } else { "have" };
        reasons.push(format!(
            "{} of {} {verb} not been attached yet.",
            counted(missing.into(), "step"),
            grouped(join.expected_steps)
        ));
    }
    let mut standings: BTreeMap<&'static str, Vec<&str>> = BTreeMap::new();
    for (member, message) in steps {
        if member.status == StepStatus::Pending {
            let topic = message.as_ref().map_or("", |message| &message.topic);
            standings
                .entry(standing(message.as_ref()))
                .or_default()
                .push(topic);
        }
    }
    for (standing, mut topics) in standings {
        let count = u64::try_from(topics.len()).unwrap_or(u64::MAX);
        topics.sort_unstable();
        topics.dedup();
        let topics = match topics.as_slice() {
            [""] => String::new(),
            [topic] => format!(" (topic {topic})"),
            topics => format!(" ({} topics)", topics.len()),
        };
        reasons.push(format!("{}{topics}: {standing}.", counted(count, "step")));
    }
    if is_cut {
        reasons.push(format!("Only the first {MEMBERS} steps were looked at."));
    }
    reasons
}

/// Where the message of an unsettled step stands, and what it takes to go on.
fn standing(message: Option<&OutboxMessage>) -> &'static str {
    let Some(message) = message else {
        return "the outbox does not know the message; it may be enqueued later, or have been removed";
    };
    let now = std::time::SystemTime::now();
    let later = message
        .progress
        .next_attempt_at
        .is_some_and(|next| next > now);
    match message.state {
        State::InFlight => "in flight, in a handler's hands",
        State::Ready if later && message.progress.attempt_count > 0 => {
            "waiting for another attempt after a failure"
        }
        State::Ready if later => "not due yet",
        State::Ready if message.progress.attempt_count > 0 => "ready for another attempt",
        State::Ready => "ready, waiting for a worker",
        State::Done | State::Dead => {
            "settled before it was attached, so it was not counted; reconcile the join"
        }
    }
}

/// POST /joins/{id}/cancel
pub(super) async fn cancel(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Fault> {
    visitor.must_be(Role::Operator)?;
    let id: JoinId = id.parse().map_err(|_| Fault::not_found("join"))?;
    let cancelled = visitor.room()?.joins().cancel(id).await?;
    if cancelled {
        lookup::record(&visitor, "join.cancel", &id.to_string(), 1).await?;
    }
    let said = if cancelled { "?cancelled=1" } else { "" };
    Ok(Redirect::to(&visitor.at(&format!("/joins/{id}{said}"))).into_response())
}
