//! `postroom inbox`: how many messages stand where, dead letters, retention.

use std::time::Duration;

use anyhow::ensure;
use clap::{Args, Subcommand};
use postroom::{Inbox, InboxKeys, InboxMessage, InboxMessageId, InboxState, List, WorkItemId};
use serde_json::json;

use crate::outbox::tell;
use crate::store::StoreArguments;
use crate::{age, progress, table};

/// Look at the inbox, revive or purge dead messages, forget old done ones
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom inbox counts --json
  postroom inbox dead
  postroom inbox revive --source stripe evt_1 evt_2
  postroom inbox purge --older-than 90d     forget what died more than 90 days ago
  postroom inbox cleanup --older-than 30d   forget what was done more than 30 days ago

A message is named by the id that its sender gave it. Without --source, every sender's message with \
that id is meant.")]
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
Messages come oldest first. To see more than --limit, give the last work_item_id (see --json) as \
--after. Payloads may hold private data, so they show only with --show-payload, and only as JSON.")]
    Dead {
        /// Only this topic
        #[arg(long)]
        topic: Option<String>,

        /// Only messages after this work item
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
    Revive {
        /// Who sent them [default: anybody]
        #[arg(long)]
        source: Option<String>,

        /// The messages, by the ids that their sender gave them
        #[arg(required = true, value_name = "MESSAGE_ID")]
        ids: Vec<String>,
    },

    /// Delete dead messages for good, and forget that they ever arrived
    Purge {
        /// Who sent them [default: anybody]
        #[arg(long, requires = "ids")]
        source: Option<String>,

        #[command(flatten)]
        which: Which,
    },

    /// Forget messages that were done and last arrived long ago: after that they count as new
    #[command(after_help = "\
Keep messages for longer than any sender may repeat them. On PostgreSQL this also prepares the archive's \
partitions for the coming days: run it daily, with the rights of the tables' owner.")]
    Cleanup {
        /// How long a done message is remembered, such as 30d
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
    /// The messages, by the ids that their sender gave them
    #[arg(value_name = "MESSAGE_ID")]
    ids: Vec<String>,

    /// Or all that have been dead for longer than this: 90s, 15m, 36h, 7d; 0s means all
    #[arg(long, value_parser = age::parse, value_name = "AGE")]
    older_than: Option<Duration>,
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let inbox = self.store.open().await?.inbox();
        match self.command {
            Command::Counts => counts(&inbox, self.json).await,
            Command::Dead {
                topic,
                after,
                limit,
                show_payload,
            } => {
                let mut list = List::new(InboxState::Dead).limit(limit);
                if let Some(topic) = topic {
                    list = list.topic(topic);
                }
                if let Some(after) = after {
                    list = list.after(after);
                }
                dead(&inbox.list(&list).await?, self.json, show_payload)
            }
            Command::Revive { source, ids } => {
                let keys = Keys::new(source.as_deref(), &ids);
                let revived = inbox.revive(keys.borrow()).await? as u64;
                tell(self.json, "revived", revived);
                expect_some(revived)
            }
            Command::Purge {
                source: _,
                which:
                    Which {
                        older_than: Some(age),
                        ..
                    },
            } => {
                let spinner = progress::spinner("purging");
                let purged = inbox.purge_older_than(age).await;
                spinner.finish_and_clear();
                tell(self.json, "purged", purged?);
                Ok(())
            }
            Command::Purge { source, which } => {
                let keys = Keys::new(source.as_deref(), &which.ids);
                let purged = inbox.purge(keys.borrow()).await?;
                tell(self.json, "purged", purged);
                expect_some(purged)
            }
            Command::Cleanup { older_than } => {
                let spinner = progress::spinner("cleaning up");
                let forgotten = inbox.cleanup(older_than).await;
                spinner.finish_and_clear();
                tell(self.json, "forgotten", forgotten?);
                Ok(())
            }
            Command::Reap => {
                tell(self.json, "reaped", inbox.reap().await?);
                Ok(())
            }
        }
    }
}

/// Message ids with their source, or bare.
enum Keys<'a> {
    Typed(Vec<InboxMessageId>),
    Bare(Vec<&'a str>),
}

impl<'a> Keys<'a> {
    fn new(source: Option<&str>, ids: &'a [String]) -> Self {
        match source {
            Some(source) => Self::Typed(
                ids.iter()
                    .map(|id| InboxMessageId::new(source, id))
                    .collect(),
            ),
            None => Self::Bare(ids.iter().map(String::as_str).collect()),
        }
    }

    fn borrow(&self) -> InboxKeys<'_> {
        match self {
            Self::Typed(ids) => InboxKeys::Typed(ids),
            Self::Bare(ids) => InboxKeys::Bare(ids),
        }
    }
}

async fn counts(inbox: &Inbox, json: bool) -> anyhow::Result<()> {
    let counts = inbox.counts().await?;
    if json {
        println!(
            "{}",
            json!({"seen": counts.seen, "processing": counts.processing, "done": counts.done, "dead": counts.dead})
        );
        return Ok(());
    }
    let rows = [
        ("seen", counts.seen),
        ("processing", counts.processing),
        ("done", counts.done),
        ("dead", counts.dead),
    ];
    table::print(
        ["state", "messages"],
        &rows.map(|(state, count)| [state.to_owned(), count.to_string()]),
    )?;
    Ok(())
}

fn dead(messages: &[InboxMessage], json: bool, show_payload: bool) -> anyhow::Result<()> {
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
                message.id.source.clone(),
                message.id.message_id.clone(),
                message.topic.clone().unwrap_or_default(),
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
    table::print(
        ["source", "message id", "topic", "retries", "died", "error"],
        &rows,
    )?;
    Ok(())
}

fn as_json(message: &InboxMessage, show_payload: bool) -> serde_json::Value {
    let mut value = json!({
        "work_item_id": message.work_item_id.map(|id| id.to_string()),
        "source": message.id.source,
        "message_id": message.id.message_id,
        "topic": message.topic,
        "correlation_id": message.correlation_id,
        "first_seen": age::stamp(message.first_seen),
        "last_seen": age::stamp(message.last_seen),
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

/// Ids that name nothing dead are a mistake worth an exit code.
fn expect_some(count: u64) -> anyhow::Result<()> {
    ensure!(
        count > 0,
        "none of these is a dead message; `postroom inbox dead` lists those that are"
    );
    Ok(())
}
