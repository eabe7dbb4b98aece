//! `postroom dead`: messages of the outbox that failed for good. Look at them, try them again, delete them.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::{Args, Subcommand};
use postroom::{DeadFilter, List, Outbox, Postroom, State, WorkItemId};
use serde_json::json;

use crate::list::Filter;
use crate::store::StoreArguments;
use crate::{age, audit, out, outbox, progress};

/// List, replay or purge dead messages of the outbox: those that failed for good
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom dead list                              what has failed for good, and why
  postroom dead replay 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11
  postroom dead replay --all --dry-run            how many would be tried again?
  postroom dead purge --older-than 90d --yes      delete old ones, without a question

Dead messages of the inbox: `postroom inbox list --state dead`, `inbox revive`, `inbox purge`.")]
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
    /// List dead messages, newest first
    #[command(after_help = "\
Examples:
  postroom dead list --topic order.created
  postroom dead list --json --show-payload    everything about them

To see more than --limit, give the last id as --after; as JSON it is `next`. Payloads may hold private \
data: they show only with --show-payload, and only as JSON.")]
    List {
        #[command(flatten)]
        filter: Filter,
    },

    /// Make dead messages ready again, with a fresh budget of attempts
    #[command(after_help = "\
Examples:
  postroom dead replay 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11
  postroom dead replay --topic order.created
  postroom dead replay --older-than 1h --dry-run
  postroom dead replay --all

Exit code 1 when an id that was named is not a dead message; the others are replayed. What was done is in \
the audit trail.")]
    Replay {
        #[command(flatten)]
        which: Which,

        /// Only say how many
        #[arg(long)]
        dry_run: bool,
    },

    /// Delete dead messages for good
    #[command(after_help = "\
Examples:
  postroom dead purge 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11
  postroom dead purge --older-than 90d --dry-run
  postroom dead purge --topic order.created --yes

It asks before it deletes. Where nobody can answer, --yes is needed. Exit code 1 when an id that was \
named is not a dead message; the others are deleted. What was done is in the audit trail.")]
    Purge {
        #[command(flatten)]
        which: Which,

        /// Only say how many
        #[arg(long)]
        dry_run: bool,

        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// Dead messages, by id or by what they have in common.
#[derive(Args)]
#[group(required = true, multiple = true)]
struct Which {
    /// The messages, by the ids that `dead list` prints
    #[arg(value_name = "ID", conflicts_with_all = ["older_than", "topic", "all"])]
    ids: Vec<WorkItemId>,

    /// Those that have been dead for longer than this: 90s, 15m, 36h, 7d
    #[arg(long, value_parser = age::parse, value_name = "AGE")]
    older_than: Option<Duration>,

    /// Those of this topic
    #[arg(long)]
    topic: Option<String>,

    /// All of them
    #[arg(long, conflicts_with_all = ["older_than", "topic"])]
    all: bool,
}

impl Which {
    fn filter(&self) -> DeadFilter {
        let mut filter = DeadFilter::all();
        if let Some(age) = self.older_than {
            filter = filter.older_than(age);
        }
        if let Some(topic) = &self.topic {
            filter = filter.topic(topic);
        }
        filter
    }

    /// How many dead messages are meant.
    async fn count(&self, outbox: &Outbox) -> anyhow::Result<u64> {
        if self.ids.is_empty() {
            return Ok(outbox.count_dead(&self.filter()).await?);
        }
        let mut count = 0;
        for id in self.named() {
            let message = outbox.get(id).await?;
            count += u64::from(message.is_some_and(|message| message.state == State::Dead));
        }
        Ok(count)
    }

    fn named(&self) -> Vec<WorkItemId> {
        let mut ids = self.ids.clone();
        ids.sort();
        ids.dedup();
        ids
    }

    /// What the audit trail calls them.
    fn subject(&self) -> String {
        let age = self.older_than.iter();
        let age = age.map(|age| format!("older_than={}s", age.as_secs()));
        let topic = self.topic.iter().map(|topic| format!("topic={topic}"));
        let parts: Vec<String> = topic.chain(age).collect();
        audit::subject(&self.named(), &parts)
    }

    /// An id that was named and is not dead is a mistake worth an exit code.
    fn expect_all(&self, count: u64) -> anyhow::Result<()> {
        let named = self.named().len() as u64;
        ensure!(
            self.ids.is_empty() || count == named,
            "{} of {named} ids are not dead messages; `postroom dead list` lists those that are",
            named.saturating_sub(count),
        );
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Act {
    Replay,
    Purge,
}

impl Act {
    fn done(self) -> &'static str {
        match self {
            Self::Replay => "replayed",
            Self::Purge => "purged",
        }
    }
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let room = self.store.open().await?;
        match self.command {
            Command::List { filter } => list(&room.outbox(), &filter, self.json).await,
            Command::Replay { which, dry_run } => {
                act(&room, Act::Replay, &which, dry_run, self.json).await
            }
            Command::Purge {
                which,
                dry_run,
                yes,
            } => {
                if !dry_run && !yes {
                    confirm(which.count(&room.outbox()).await?)?;
                }
                act(&room, Act::Purge, &which, dry_run, self.json).await
            }
        }
    }
}

async fn list(outbox: &Outbox, filter: &Filter, json: bool) -> anyhow::Result<()> {
    let messages = outbox.list(&filter.apply(List::new(State::Dead))).await?;
    let last = messages.last().map(|message| message.id);
    if json {
        let messages = messages
            .iter()
            .map(|message| outbox::as_json(message, filter.show_payload));
        out::json(&filter.page(messages.collect(), last))?;
    } else if messages.is_empty() {
        out::line("no dead messages")?;
    } else {
        outbox::print(&messages)?;
        filter.tell_more(messages.len(), last)?;
    }
    Ok(())
}

async fn act(
    room: &Postroom,
    act: Act,
    which: &Which,
    dry_run: bool,
    json: bool,
) -> anyhow::Result<()> {
    let outbox = room.outbox();
    if dry_run {
        let count = which.count(&outbox).await?;
        tell(act.done(), count, true, json)?;
        return which.expect_all(count);
    }
    let count = if which.ids.is_empty() {
        act_on_all(&outbox, act, which).await?
    } else {
        let ids = which.named();
        match act {
            Act::Replay => outbox.replay(&ids).await?.len() as u64,
            Act::Purge => outbox.purge(&ids).await?,
        }
    };
    if count > 0 {
        let action = match act {
            Act::Replay => "dead.replay",
            Act::Purge => "dead.purge",
        };
        let named = which.named();
        if named.len() as u64 == count {
            // Each by its name, so that `show` tells of it.
            for id in named {
                audit::record(room, action, &id.to_string(), 1, None).await?;
            }
        } else {
            let detail = audit::detail(&named);
            audit::record(room, action, &which.subject(), count, detail).await?;
        }
    }
    tell(act.done(), count, false, json)?;
    which.expect_all(count)
}

/// Works on all that match, under a bar that follows what is left.
async fn act_on_all(outbox: &Outbox, act: Act, which: &Which) -> anyhow::Result<u64> {
    let filter = which.filter();
    let total = outbox.count_dead(&filter).await?;
    let left = || outbox.count_dead(&filter);
    let work = async {
        match act {
            Act::Replay => outbox.replay_matching(&filter).await,
            Act::Purge => outbox.purge_matching(&filter).await,
        }
    };
    Ok(progress::followed(act.done(), total, work, left).await?)
}

/// Tells how many messages something was done to, or would be.
pub(crate) fn tell(done: &str, count: u64, dry_run: bool, json: bool) -> std::io::Result<()> {
    if json {
        out::json(&json!({ done: count, "dry_run": dry_run }))
    } else if dry_run {
        out::line(format_args!(
            "{} would be {done}",
            out::counted(count, "message")
        ))
    } else {
        out::line(format_args!("{done} {}", out::counted(count, "message")))
    }
}

/// Asks whoever sits at the terminal before messages are deleted.
pub(crate) fn confirm(count: u64) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        bail!(
            "nobody can be asked here, and deleted messages are gone for good; add --yes, or look first with --dry-run"
        );
    }
    if count == 0 {
        return Ok(());
    }
    eprint!(
        "Delete {} for good? [y/N] ",
        out::counted(count, "dead message")
    );
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    ensure!(
        matches!(answer.trim(), "y" | "Y" | "yes"),
        "nothing was deleted"
    );
    Ok(())
}
