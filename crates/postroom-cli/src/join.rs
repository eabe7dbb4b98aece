//! `postroom join`: groups of messages that something waits for.

use std::fmt::Write as _;

use anyhow::Context;
use clap::{Args, Subcommand};
use postroom::{
    Join, JoinId, JoinMember, JoinStatus, OutboxMessage, Postroom, State, StepStatus, WorkItemId,
};
use serde_json::{Value, json};

use crate::store::StoreArguments;
use crate::{age, audit, out, outbox, show, table};

/// Look at joins, and why they wait; cancel one
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom join list --key customer-7
  postroom join show 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11
  postroom join cancel 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

#[derive(Subcommand)]
enum Command {
    /// List all joins, newest first, or those of a grouping key, oldest first
    #[command(after_help = "\
Examples:
  postroom join list
  postroom join list --key customer-7
  postroom join list --key customer-7 --json | jq '.items[] | select(.status == \"pending\") | .id'

To see more than --limit, give the last id as --after; as JSON it is `next`.")]
    List {
        /// Only joins that belong to this
        #[arg(long)]
        key: Option<String>,

        /// Only joins after this one, in the order of the list
        #[arg(long, value_name = "ID")]
        after: Option<JoinId>,

        /// At most so many, 1 to 10000
        #[arg(long, default_value_t = 50, value_name = "COUNT")]
        limit: u32,
    },

    /// Show a join: how far it is, its messages, and why it waits
    #[command(after_help = "\
Examples:
  postroom join show 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11
  postroom join show 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11 --json | jq -r '.waiting[]'

The exit code is 1 when there is no such join.")]
    Show {
        /// The join
        #[arg(value_name = "ID")]
        id: JoinId,

        /// Show so many messages at most, 1 to 10000
        #[arg(long, default_value_t = 100, value_name = "COUNT")]
        limit: u32,
    },

    /// Cancel a pending join: its counters freeze, and what waits for it does not go on
    #[command(after_help = "\
Examples:
  postroom join cancel 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11

Its messages are handled as before. Exit code 1 when there is no such join; a join that has finished \
already stays as it is. What was done is in the audit trail.")]
    Cancel {
        /// The join
        #[arg(value_name = "ID")]
        id: JoinId,
    },
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let room = self.store.open().await?;
        match self.command {
            Command::List { key, after, limit } => {
                let joins = match key {
                    Some(key) => room.joins().list(&key, after, limit).await?,
                    None => room.joins().recent(after, limit).await?,
                };
                list(&joins, limit, self.json)?;
            }
            Command::Show { id, limit } => show(&room, id, limit, self.json).await?,
            Command::Cancel { id } => cancel(&room, id, self.json).await?,
        }
        Ok(())
    }
}

fn list(joins: &[Join], limit: u32, json: bool) -> std::io::Result<()> {
    let is_full = u32::try_from(joins.len()).is_ok_and(|count| count == limit);
    let next = joins.last().filter(|_| is_full).map(|join| join.id);
    if json {
        let joins: Vec<Value> = joins.iter().map(as_json).collect();
        let next = next.map(|id| id.to_string());
        return out::json(&json!({ "items": joins, "next": next }));
    }
    if joins.is_empty() {
        return out::line("no such joins");
    }
    let rows: Vec<_> = joins
        .iter()
        .map(|join| {
            [
                join.id.to_string(),
                status(join.status).to_owned(),
                progress(join),
                age::since(join.created_at),
            ]
        })
        .collect();
    table::print(["id", "status", "progress", "started"], &rows)?;
    match next {
        Some(next) => out::line(format_args!("\nmore may follow: --after {next}")),
        None => Ok(()),
    }
}

/// A step with its message, as far as the outbox knows it.
struct Step {
    member: JoinMember,
    message: Option<OutboxMessage>,
}

impl Step {
    async fn of(room: &Postroom, join: JoinId, limit: u32) -> anyhow::Result<Vec<Self>> {
        let mut steps = Vec::new();
        for member in room.joins().members(join, None, limit).await? {
            // The message's id is the work item's, unless the application chose another.
            let id = WorkItemId::from_uuid(member.message_id.as_uuid());
            let message = room.outbox().get(id).await?;
            steps.push(Self { member, message });
        }
        Ok(steps)
    }

    fn state(&self) -> &'static str {
        self.message
            .as_ref()
            .map_or("unknown", |message| outbox::state(message.state))
    }

    /// Why a step that has not been counted was not.
    fn why(&self) -> String {
        let id = self.member.message_id;
        let Some(message) = &self.message else {
            return format!(
                "message {id} is not in the outbox: it was never enqueued, has an id of its own, or was cleaned up"
            );
        };
        let topic = &message.topic;
        match message.state {
            State::Ready => format!(
                "message {id} ({topic}) is not done yet: {}",
                show::ready(&message.progress, topic)
            ),
            State::InFlight => format!(
                "message {id} ({topic}) is in flight: {}",
                show::in_flight(&message.progress)
            ),
            State::Done | State::Dead => format!(
                "message {id} ({topic}) was {} before it was attached: count it with `joins().reconcile`",
                outbox::state(message.state)
            ),
        }
    }
}

async fn show(room: &Postroom, id: JoinId, limit: u32, json: bool) -> anyhow::Result<()> {
    let join =
        room.joins().get(id).await?.with_context(|| {
            format!("there is no join {id}; finished ones leave with `cleanup`")
        })?;
    let steps = Step::of(room, id, limit).await?;
    let waiting = waiting(&join, &steps, limit);
    if json {
        let mut value = as_json(&join);
        let steps = steps.iter().map(|step| {
            json!({
                "message_id": step.member.message_id.to_string(),
                "status": step_status(step.member.status),
                "state": step.state(),
                "topic": step.message.as_ref().map(|message| &message.topic),
                "attempt_count": step.message.as_ref().map(|message| message.progress.attempt_count),
                "last_error": step.message.as_ref().map(|message| &message.progress.last_error),
            })
        });
        value["members"] = steps.collect();
        value["waiting"] = json!(waiting);
        out::json(&value)?;
        return Ok(());
    }
    table::facts(&[
        ("id", Some(join.id.to_string())),
        ("key", join.grouping_key.clone()),
        ("status", Some(status(join.status).to_owned())),
        ("progress", Some(progress(&join))),
        ("started", Some(show::moment(join.created_at))),
        ("changed", Some(show::moment(join.last_updated_at))),
    ])?;
    if !waiting.is_empty() {
        out::line("\nWhy it waits")?;
        for reason in &waiting {
            out::line(format_args!("  {}", table::plain(reason)))?;
        }
    }
    if !steps.is_empty() {
        out::line("")?;
        print_steps(&steps)?;
    }
    Ok(())
}

fn print_steps(steps: &[Step]) -> std::io::Result<()> {
    let rows: Vec<_> = steps
        .iter()
        .map(|step| {
            let message = step.message.as_ref();
            let progress = message.map(|message| &message.progress);
            [
                step.member.message_id.to_string(),
                step_status(step.member.status).to_owned(),
                step.state().replace('_', " "),
                message
                    .map(|message| message.topic.clone())
                    .unwrap_or_default(),
                progress
                    .map(|progress| progress.attempt_count.to_string())
                    .unwrap_or_default(),
                progress
                    .and_then(|progress| progress.last_error.clone())
                    .unwrap_or_default(),
            ]
        })
        .collect();
    table::print(
        ["message", "step", "state", "topic", "retries", "error"],
        &rows,
    )
}

/// Why a join has not finished: a reason for each step that is missing, as far as they were read.
fn waiting(join: &Join, steps: &[Step], limit: u32) -> Vec<String> {
    if join.status != JoinStatus::Pending {
        return Vec::new();
    }
    let pending = steps
        .iter()
        .filter(|step| step.member.status == StepStatus::Pending);
    let mut reasons: Vec<String> = pending.map(Step::why).collect();
    let attached = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    let missing = join.expected_steps.saturating_sub(attached);
    if attached < limit && missing > 0 {
        reasons.push(format!(
            "{} of {} steps have no message yet: nothing was attached for them",
            missing, join.expected_steps
        ));
    }
    if attached == limit {
        reasons.push(format!(
            "only {limit} messages were looked at; --limit shows more"
        ));
    }
    reasons
}

async fn cancel(room: &Postroom, id: JoinId, json: bool) -> anyhow::Result<()> {
    let cancelled = room.joins().cancel(id).await?;
    if cancelled {
        audit::record(room, "join.cancel", &id.to_string(), 1, None).await?;
    }
    if json {
        out::json(&json!({ "cancelled": cancelled }))?;
    } else if cancelled {
        out::line(format_args!("cancelled join {id}"))?;
    } else {
        out::line(format_args!("join {id} had finished already"))?;
    }
    Ok(())
}

/// How far a join is, in words.
pub(crate) fn progress(join: &Join) -> String {
    let mut text = format!(
        "{} of {} steps completed",
        join.completed_steps, join.expected_steps
    );
    if join.failed_steps > 0 {
        let _ = write!(text, ", {} failed", join.failed_steps);
    }
    text
}

fn as_json(join: &Join) -> Value {
    json!({
        "id": join.id.to_string(),
        "grouping_key": join.grouping_key,
        "status": status(join.status),
        "expected_steps": join.expected_steps,
        "completed_steps": join.completed_steps,
        "failed_steps": join.failed_steps,
        "created_at": age::stamp(join.created_at),
        "last_updated_at": age::stamp(join.last_updated_at),
    })
}

fn status(status: JoinStatus) -> &'static str {
    match status {
        JoinStatus::Pending => "pending",
        JoinStatus::Completed => "completed",
        JoinStatus::Failed => "failed",
        JoinStatus::Cancelled => "cancelled",
    }
}

fn step_status(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Pending => "pending",
        StepStatus::Completed => "completed",
        StepStatus::Failed => "failed",
    }
}
