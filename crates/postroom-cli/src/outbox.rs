//! `postroom outbox`: how many messages stand where, dead letters, retention.

use std::time::{Duration, SystemTime};

use anyhow::ensure;
use clap::{Args, Subcommand};
use postroom::{List, Outbox, OutboxMessage, State, WorkItemId};
use serde_json::json;

use crate::store::StoreArguments;
use crate::{age, progress, table};

/// Look at the outbox, replay or purge dead messages, delete old done ones
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom outbox counts
  postroom outbox dead --topic order.created
  postroom outbox replay 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11
  postroom outbox replay --older-than 0s    replay every dead message
  postroom outbox purge --older-than 90d    forget what died more than 90 days ago
  postroom outbox cleanup --older-than 7d   delete what was done more than 7 days ago")]
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
    /// Count the messages in each state
    Counts,

    /// List dead messages: those that failed for good
    #[command(after_help = "\
Messages come oldest first. To see more than --limit, give the last id as --after. Payloads may hold \
private data, so they show only with --show-payload, and only as JSON.")]
    Dead {
        /// Only this topic
        #[arg(long)]
        topic: Option<String>,

        /// Only messages after this id
        #[arg(long, value_name = "ID")]
        after: Option<WorkItemId>,

        /// At most so many, 1 to 10000
        #[arg(long, default_value_t = 50, value_name = "COUNT")]
        limit: u32,

        /// Include payloads and headers
        #[arg(long, requires = "json")]
        show_payload: bool,
    },

    /// Make dead messages ready again, with a fresh budget of attempts
    Replay {
        #[command(flatten)]
        which: Which,

        /// With --older-than: only this topic
        #[arg(long, requires = "older_than")]
        topic: Option<String>,
    },

    /// Delete dead messages for good
    Purge {
        #[command(flatten)]
        which: Which,
    },

    /// Delete messages that were done long ago. Unfinished and dead ones stay
    #[command(after_help = "\
On PostgreSQL this also prepares the archive's partitions for the coming days: run it daily, with the \
rights of the tables' owner.")]
    Cleanup {
        /// How long a done message is kept, such as 7d
        #[arg(long, value_parser = age::parse, value_name = "AGE")]
        older_than: Duration,
    },

    /// Free expired leases. Claims do that by themselves; this only tidies the numbers
    Reap,
}

/// Dead messages, by id or by age.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The messages, by the ids that `dead` lists
    #[arg(value_name = "ID")]
    ids: Vec<WorkItemId>,

    /// Or all that have been dead for longer than this: 90s, 15m, 36h, 7d; 0s means all
    #[arg(long, value_parser = age::parse, value_name = "AGE")]
    older_than: Option<Duration>,
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let outbox = self.store.open().await?.outbox();
        match self.command {
            Command::Counts => counts(&outbox, self.json).await,
            Command::Dead {
                topic,
                after,
                limit,
                show_payload,
            } => {
                let mut list = List::new(State::Dead).limit(limit);
                if let Some(topic) = topic {
                    list = list.topic(topic);
                }
                if let Some(after) = after {
                    list = list.after(after);
                }
                dead(&outbox.list(&list).await?, self.json, show_payload)
            }
            Command::Replay { which, topic } => {
                let replayed = match which.older_than {
                    None => outbox.replay(&which.ids).await?.len() as u64,
                    Some(age) => replay_older_than(&outbox, age, topic).await?,
                };
                tell(self.json, "replayed", replayed);
                expect_all(&which, replayed)
            }
            Command::Purge { which } => {
                let purged = match which.older_than {
                    None => outbox.purge(&which.ids).await?,
                    Some(age) => {
                        let spinner = progress::spinner("purging");
                        let purged = outbox.purge_older_than(age).await;
                        spinner.finish_and_clear();
                        purged?
                    }
                };
                tell(self.json, "purged", purged);
                expect_all(&which, purged)
            }
            Command::Cleanup { older_than } => {
                let spinner = progress::spinner("cleaning up");
                let deleted = outbox.cleanup(older_than).await;
                spinner.finish_and_clear();
                tell(self.json, "deleted", deleted?);
                Ok(())
            }
            Command::Reap => {
                tell(self.json, "reaped", outbox.reap().await?);
                Ok(())
            }
        }
    }
}

async fn counts(outbox: &Outbox, json: bool) -> anyhow::Result<()> {
    let counts = outbox.counts().await?;
    if json {
        println!(
            "{}",
            json!({"ready": counts.ready, "in_flight": counts.in_flight, "done": counts.done, "dead": counts.dead})
        );
        return Ok(());
    }
    let rows = [
        ("ready", counts.ready),
        ("in flight", counts.in_flight),
        ("done", counts.done),
        ("dead", counts.dead),
    ];
    table::print(
        ["state", "messages"],
        &rows.map(|(state, count)| [state.to_owned(), count.to_string()]),
    )?;
    Ok(())
}

fn dead(messages: &[OutboxMessage], json: bool, show_payload: bool) -> anyhow::Result<()> {
    if json {
        let messages: Vec<_> = messages
            .iter()
            .map(|message| as_json(message, show_payload))
            .collect();
        println!("{}", serde_json::to_string_pretty(&messages)?);
        return Ok(());
    }
    if messages.is_empty() {
        println!("no dead messages");
        return Ok(());
    }
    let rows: Vec<_> = messages
        .iter()
        .map(|message| {
            [
                message.id.to_string(),
                message.topic.clone(),
                message.progress.attempt_count.to_string(),
                message
                    .progress
                    .processed_at
                    .map(age::since)
                    .unwrap_or_default(),
                message.progress.last_error.clone().unwrap_or_default(),
            ]
        })
        .collect();
    table::print(["id", "topic", "retries", "died", "error"], &rows)?;
    Ok(())
}

fn as_json(message: &OutboxMessage, show_payload: bool) -> serde_json::Value {
    let mut value = json!({
        "id": message.id.to_string(),
        "message_id": message.message_id.to_string(),
        "topic": message.topic,
        "correlation_id": message.correlation_id,
        "created_at": age::stamp(message.created_at),
        "died_at": message.progress.processed_at.map(age::stamp),
        "worker": message.progress.processed_by,
        "attempt_count": message.progress.attempt_count,
        "delivery_count": message.progress.delivery_count,
        "error": message.progress.last_error,
    });
    if show_payload {
        value["payload"] = json!(message.payload);
        value["headers"] = json!(message.headers);
    }
    value
}

/// Replays page by page. A page is read whole, so pages are small.
async fn replay_older_than(
    outbox: &Outbox,
    age: Duration,
    topic: Option<String>,
) -> anyhow::Result<u64> {
    const PAGE: u32 = 200;
    let cutoff = SystemTime::now()
        .checked_sub(age)
        .unwrap_or(SystemTime::UNIX_EPOCH);
    let spinner = progress::spinner("replaying");
    let mut list = List::new(State::Dead).limit(PAGE);
    if let Some(topic) = topic {
        list = list.topic(topic);
    }
    loop {
        let page = outbox.list(&list).await?;
        let Some(last) = page.last() else { break };
        list = list.after(last.id);
        let is_old = |message: &&OutboxMessage| {
            age.is_zero()
                || message
                    .progress
                    .processed_at
                    .is_some_and(|died_at| died_at < cutoff)
        };
        let ids: Vec<WorkItemId> = page
            .iter()
            .filter(is_old)
            .map(|message| message.id)
            .collect();
        spinner.inc(outbox.replay(&ids).await?.len() as u64);
    }
    spinner.finish_and_clear();
    Ok(spinner.position())
}

/// One word and one number.
pub(crate) fn tell(json: bool, what: &str, count: u64) {
    if json {
        println!("{}", json!({ what: count }));
    } else {
        println!(
            "{what} {count} {}",
            if count == 1 { "message" } else { "messages" }
        );
    }
}

/// An id that was named and is not dead is a mistake worth an exit code.
fn expect_all(which: &Which, count: u64) -> anyhow::Result<()> {
    let mut ids: Vec<_> = which.ids.clone();
    ids.sort();
    ids.dedup();
    ensure!(
        which.older_than.is_some() || count == ids.len() as u64,
        "{} of {} ids are not dead messages; `postroom outbox dead` lists those that are",
        ids.len() as u64 - count,
        ids.len()
    );
    Ok(())
}
