//! `postroom cleanup`: delete what was done long ago.

use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use postroom::Postroom;
use serde_json::json;

use crate::store::StoreArguments;
use crate::{age, audit, out, progress};

/// Delete what was done long ago: messages of outbox and inbox, and joins
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom cleanup --older-than 30d
  postroom cleanup --older-than 7d --outbox
  postroom cleanup --older-than 30d --inbox --joins --json

Unfinished and dead messages stay, and pending joins. An inbox message that was forgotten counts as new \
when it arrives again: keep them for longer than any sender may repeat them. On PostgreSQL this also \
prepares the archive's partitions for the coming days: run it daily, with the rights of the tables' owner.")]
pub(crate) struct Arguments {
    /// How long done messages and finished joins are kept: 36h, 7d
    #[arg(long, value_parser = age::parse, value_name = "AGE")]
    older_than: Duration,

    /// Clean the outbox. Without --outbox, --inbox and --joins, all three are cleaned
    #[arg(long)]
    outbox: bool,

    /// Clean the inbox
    #[arg(long)]
    inbox: bool,

    /// Clean the joins
    #[arg(long)]
    joins: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

/// How many messages go in one transaction.
const BATCH: u32 = 1_000;

/// What is cleaned, one after the other.
#[derive(Clone, Copy)]
enum Part {
    Outbox,
    Inbox,
    Joins,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Outbox => "outbox",
            Self::Inbox => "inbox",
            Self::Joins => "joins",
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Outbox | Self::Inbox => "message",
            Self::Joins => "join",
        }
    }

    /// Cleans in batches, and says how many are gone.
    async fn clean(
        self,
        room: &Postroom,
        older_than: Duration,
        progress: &ProgressBar,
    ) -> Result<u64, postroom::Error> {
        match self {
            Self::Outbox => {
                let outbox = room.outbox();
                loop {
                    match outbox.cleanup_batch(older_than, BATCH).await? {
                        0 => break,
                        count => progress.inc(count),
                    }
                }
                // Prepares partitions, too.
                Ok(progress.position() + outbox.cleanup(older_than).await?)
            }
            Self::Inbox => room.inbox().cleanup(older_than).await,
            Self::Joins => room.joins().cleanup(older_than).await,
        }
    }
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let room = self.store.open().await?;
        let every = !(self.outbox || self.inbox || self.joins);
        let parts = [
            (Part::Outbox, self.outbox),
            (Part::Inbox, self.inbox),
            (Part::Joins, self.joins),
        ];
        let mut deleted = json!({});
        for (part, wanted) in parts {
            if !(wanted || every) {
                continue;
            }
            let spinner = progress::spinner(part.name());
            let count = part.clean(&room, self.older_than, &spinner).await;
            spinner.finish_and_clear();
            let count = count?;
            if count > 0 {
                let action = format!("{}.cleanup", part.name());
                let subject = format!("older_than={}s", self.older_than.as_secs());
                audit::record(&room, &action, &subject, count, None).await?;
            }
            deleted[part.name()] = json!(count);
            if !self.json {
                let count = out::counted(count, part.what());
                out::line(format_args!("{}: deleted {count}", part.name()))?;
            }
        }
        if self.json {
            out::json(&json!({ "deleted": deleted }))?;
        }
        Ok(())
    }
}
