//! `postroom list`: messages of the outbox, newest first.

use std::fmt::Display;
use std::time::Duration;

use clap::{Args, ValueEnum};
use postroom::{List, State, WorkItemId};
use serde_json::{Value, json};

use crate::store::StoreArguments;
use crate::{age, out, outbox};

/// List messages of the outbox, newest first
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom list                                    the last 50 messages
  postroom list --state ready --older-than 10m     unclaimed for so long; scheduled ones too
  postroom list --topic order.created --correlation req-42
  postroom list --state dead --json | jq -r '.items[].id'
  postroom list --after 019a7d3c-52f0-7c41-a3e7-0d9f3f1f6c11

To see more than --limit, give the last id as --after; as JSON it is `next`. Payloads may hold private \
data: they show only with --show-payload, and only as JSON. The inbox has a list of its own: `postroom \
inbox list`.")]
pub(crate) struct Arguments {
    /// Only messages in this state
    #[arg(long, value_enum, default_value_t = Wanted::All)]
    state: Wanted,

    #[command(flatten)]
    filter: Filter,

    /// Only what comes after this id
    #[arg(long, value_name = "ID")]
    after: Option<WorkItemId>,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

#[derive(Clone, Copy, ValueEnum)]
enum Wanted {
    Ready,
    InFlight,
    Done,
    Dead,
    All,
}

/// Which messages of a queue, and how many.
#[derive(Args)]
pub(crate) struct Filter {
    /// Only this topic
    #[arg(long)]
    topic: Option<String>,

    /// Only this correlation id
    #[arg(long, value_name = "ID")]
    correlation: Option<String>,

    /// Only what was enqueued longer ago than this: 90s, 15m, 36h, 7d
    #[arg(long, value_parser = age::parse, value_name = "AGE")]
    older_than: Option<Duration>,

    /// Only what was enqueued more recently than this
    #[arg(long, value_parser = age::parse, value_name = "AGE")]
    newer_than: Option<Duration>,

    /// At most so many, 1 to 10000
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    limit: u32,

    /// Include payloads and headers
    #[arg(long, requires = "json")]
    pub(crate) show_payload: bool,
}

impl Filter {
    pub(crate) fn apply<S>(&self, list: List<S>) -> List<S> {
        let mut list = list.newest_first().limit(self.limit);
        if let Some(topic) = &self.topic {
            list = list.topic(topic);
        }
        if let Some(correlation) = &self.correlation {
            list = list.correlation(correlation);
        }
        if let Some(age) = self.older_than {
            list = list.older_than(age);
        }
        if let Some(age) = self.newer_than {
            list = list.newer_than(age);
        }
        list
    }

    /// A page for programs: the messages, and where the next page begins if there may be one.
    pub(crate) fn page(&self, items: Vec<Value>, last: Option<impl Display>) -> Value {
        let next = self.next(items.len(), last).map(|id| id.to_string());
        json!({ "items": items, "next": next })
    }

    /// What a person is told when there may be more.
    pub(crate) fn tell_more(
        &self,
        shown: usize,
        last: Option<impl Display>,
    ) -> std::io::Result<()> {
        match self.next(shown, last) {
            Some(last) => out::line(format_args!("\nmore may follow: --after {last}")),
            None => Ok(()),
        }
    }

    fn next<P>(&self, shown: usize, last: Option<P>) -> Option<P> {
        last.filter(|_| u32::try_from(shown).is_ok_and(|count| count == self.limit))
    }
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let list = match self.state {
            Wanted::All => List::any(),
            Wanted::Ready => List::new(State::Ready),
            Wanted::InFlight => List::new(State::InFlight),
            Wanted::Done => List::new(State::Done),
            Wanted::Dead => List::new(State::Dead),
        };
        let mut list = self.filter.apply(list);
        if let Some(after) = self.after {
            list = list.after(after);
        }
        let messages = self.store.open().await?.outbox().list(&list).await?;
        let last = messages.last().map(|message| message.id);
        if self.json {
            let messages = messages
                .iter()
                .map(|message| outbox::as_json(message, self.filter.show_payload));
            out::json(&self.filter.page(messages.collect(), last))?;
        } else if messages.is_empty() {
            out::line("no such messages")?;
        } else {
            outbox::print(&messages)?;
            self.filter.tell_more(messages.len(), last)?;
        }
        Ok(())
    }
}
