//! `postroom show`: everything about one message, and what will happen to it next.

use anyhow::Context;
use clap::Args;
use postroom::{JoinId, JoinStatus, OutboxMessage, Postroom, Progress, State, WorkItemId};
use serde_json::json;
use uuid::Uuid;

use crate::store::StoreArguments;
use crate::{age, audit, join, out, outbox, table};

/// Show one message of the outbox, and what will happen to it next
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom show 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11
  postroom show 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11 --show-payload
  postroom show 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11 --json | jq -r .next

Payload and headers may hold private data, so they show only with --show-payload. The exit code is 1 when \
there is no such message. A message of the inbox is shown by `postroom inbox show`.")]
pub(crate) struct Arguments {
    /// The message, by the id that `enqueue` and `list` print
    #[arg(value_name = "ID")]
    id: WorkItemId,

    /// Include payload and headers
    #[arg(long)]
    show_payload: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let room = self.store.open().await?;
        let message = room.outbox().get(self.id).await?.with_context(|| {
            format!(
                "the outbox has no message {}; `postroom list` shows what is there (done messages leave with `cleanup`)",
                self.id
            )
        })?;
        let next = next(&room, &message).await?;
        let history = audit::of(&room, &self.id.to_string()).await?;
        if self.json {
            let mut value = outbox::as_json(&message, self.show_payload);
            value["next"] = json!(next);
            value["audit"] = history.iter().map(audit::as_json).collect();
            out::json(&value)?;
            return Ok(());
        }
        let mut facts = vec![
            ("id", Some(message.id.to_string())),
            ("message id", Some(message.message_id.to_string())),
            ("topic", Some(message.topic.clone())),
            (
                "state",
                Some(outbox::state(message.state).replace('_', " ")),
            ),
            ("correlation", message.correlation_id.clone()),
            ("enqueued", Some(moment(message.created_at))),
            ("due", message.due_time.map(moment)),
        ];
        facts.extend(progress_facts(&message.progress));
        facts.push(("next", Some(next)));
        table::facts(&facts)?;
        audit::print(&history)?;
        if self.show_payload {
            print_content(
                Some(&message.payload),
                message
                    .headers
                    .iter()
                    .map(|(name, value)| format!("{name}: {value}")),
            )?;
        }
        Ok(())
    }
}

/// A time for people.
pub(crate) fn moment(time: std::time::SystemTime) -> String {
    let distance = age::until(time).unwrap_or_else(|| age::since(time));
    format!("{} ({distance})", age::stamp(time))
}

/// What both queues keep about a message.
pub(crate) fn progress_facts(progress: &Progress) -> [(&'static str, Option<String>); 7] {
    let spent = progress.attempt_count - progress.deferral_count.min(progress.attempt_count);
    let attempts = match progress.deferral_count {
        0 => spent.to_string(),
        deferrals => format!(
            "{spent} (and {deferrals} that do not count: not ready, or the other side away)"
        ),
    };
    [
        ("deliveries", Some(progress.delivery_count.to_string())),
        ("retries", Some(attempts)),
        ("last retry", progress.last_attempt_at.map(moment)),
        ("last error", progress.last_error.clone()),
        ("leased until", progress.locked_until.map(moment)),
        ("settled", progress.processed_at.map(moment)),
        ("settled by", progress.processed_by.clone()),
    ]
}

/// Headers and payload, for those who asked.
pub(crate) fn print_content(
    payload: Option<&str>,
    headers: impl Iterator<Item = String>,
) -> std::io::Result<()> {
    out::line("\nheaders")?;
    for header in headers {
        out::line(format_args!("  {}", table::plain(&header)))?;
    }
    out::line("payload")?;
    match payload {
        Some(payload) => out::line(table::plain_lines(payload)),
        None => out::line("  (gone)"),
    }
}

/// What will happen to the message.
async fn next(room: &Postroom, message: &OutboxMessage) -> anyhow::Result<String> {
    Ok(match message.state {
        State::Done => "nothing: it is done".to_owned(),
        State::Dead => format!(
            "nothing: it is dead since {}; replay with: postroom dead replay {}",
            message
                .progress
                .processed_at
                .map(age::stamp)
                .unwrap_or_default(),
            message.id
        ),
        State::InFlight => in_flight(&message.progress),
        State::Ready => match waits_for(room, message).await? {
            Some(wait) => wait,
            None => ready(&message.progress, &message.topic),
        },
    })
}

/// What will happen to a message that a worker holds.
pub(crate) fn in_flight(progress: &Progress) -> String {
    let ends = progress.locked_until.and_then(age::until);
    format!(
        "a worker has it; if that dies, others get it {}",
        ends.unwrap_or_else(|| "now".to_owned())
    )
}

/// What will happen to a message that nobody holds.
pub(crate) fn ready(progress: &Progress, topic: &str) -> String {
    let later = progress.next_attempt_at.and_then(age::until);
    match later {
        Some(later)
            if progress.attempt_count > progress.deferral_count
                || (progress.attempt_count > 0 && progress.last_error.is_some()) =>
        {
            format!("will be tried again {later}")
        }
        Some(later) => format!("will be due {later}"),
        None if progress.locked_until.is_some() => {
            "its lease has expired: the next worker that asks gets it".to_owned()
        }
        None => format!("the next worker that handles `{topic}` gets it"),
    }
}

/// Messages on this topic wait for a join, unless the application chose another.
const WAIT_TOPIC: &str = "join.wait";

/// How a message that waits for a join is told: by the join.
async fn waits_for(room: &Postroom, message: &OutboxMessage) -> anyhow::Result<Option<String>> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wait {
        join_id: Uuid,
    }
    if message.topic != WAIT_TOPIC {
        return Ok(None);
    }
    let Ok(wait) = serde_json::from_str::<Wait>(&message.payload) else {
        return Ok(None);
    };
    let id = JoinId::from_uuid(wait.join_id);
    Ok(match room.joins().get(id).await? {
        Some(found) if found.status == JoinStatus::Pending => Some(format!(
            "waits for a join: {}; see: postroom join show {id}",
            join::progress(&found)
        )),
        _ => None,
    })
}
