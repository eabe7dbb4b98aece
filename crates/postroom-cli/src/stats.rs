//! `postroom stats`: how many messages stand where.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use postroom::{Counts, InboxCounts, Postroom, QueueStats, Stats, TopicCounts};
use serde_json::{Value, json};

use crate::store::StoreArguments;
use crate::{age, out, table};

/// Count the messages of outbox and inbox: by state, and by topic
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom stats
  postroom stats --watch              again every 2 seconds, until Ctrl-C
  postroom stats --watch 10s --json   a line of JSON every 10 seconds
  postroom stats --quick --json | jq .outbox.dead

Ready: due, and nobody holds it. Scheduled: not due yet. Retrying: waits after a failed attempt. Done \
messages are counted in the archive, which takes a while when it is large: --quick leaves them out, and so \
does --watch.")]
pub(crate) struct Arguments {
    /// Count again every so often
    #[arg(long, value_name = "EVERY", num_args = 0..=1, default_missing_value = "2s", value_parser = age::parse)]
    watch: Option<Duration>,

    /// Do not count what is done
    #[arg(long)]
    quick: bool,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

/// What was counted.
struct Counted {
    stats: Stats,
    done: Option<(Counts, InboxCounts)>,
    outbox_topics: Vec<TopicCounts>,
    inbox_topics: Vec<TopicCounts>,
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let room = self.store.open().await?;
        let Some(every) = self.watch else {
            let counted = Counted::of(&room, !self.quick).await?;
            if self.json {
                out::json(&counted.as_json(&room))?;
            } else {
                counted.print()?;
            }
            return Ok(());
        };
        let every = every.max(Duration::from_millis(500));
        loop {
            let counted = Counted::of(&room, false).await?;
            if self.json {
                out::line(counted.as_json(&room))?;
            } else {
                if std::io::stdout().is_terminal() {
                    // Home, and clear what was there.
                    write!(std::io::stdout(), "\x1b[H\x1b[2J")?;
                }
                out::line(format_args!(
                    "{}   every {}, Ctrl-C ends it\n",
                    room.identifier(),
                    age::written(every)
                ))?;
                counted.print()?;
                out::line("")?;
            }
            tokio::time::sleep(every).await;
        }
    }
}

impl Counted {
    async fn of(room: &Postroom, with_done: bool) -> anyhow::Result<Self> {
        let (outbox, inbox) = (room.outbox(), room.inbox());
        Ok(Self {
            stats: room.stats().await?,
            done: if with_done {
                Some((outbox.counts().await?, inbox.counts().await?))
            } else {
                None
            },
            outbox_topics: outbox.topics().await?,
            inbox_topics: inbox.topics().await?,
        })
    }

    fn as_json(&self, room: &Postroom) -> Value {
        let mut outbox = queue_json(&self.stats.outbox, &self.outbox_topics);
        let mut inbox = queue_json(&self.stats.inbox, &self.inbox_topics);
        if let Some((outbox_counts, inbox_counts)) = &self.done {
            outbox["done"] = json!(outbox_counts.done);
            inbox["done"] = json!(inbox_counts.done);
            inbox["seen"] = json!(inbox_counts.seen);
        }
        json!({ "store": room.identifier(), "outbox": outbox, "inbox": inbox })
    }

    fn print(&self) -> std::io::Result<()> {
        let Stats { outbox, inbox, .. } = self.stats;
        let row = |name: &str, of: fn(&QueueStats) -> u64| {
            [
                name.to_owned(),
                of(&outbox).to_string(),
                of(&inbox).to_string(),
            ]
        };
        let mut rows = vec![
            row("ready", |queue| queue.ready),
            row("in flight", |queue| queue.in_flight),
            row("scheduled", |queue| queue.scheduled),
            row("retrying", |queue| queue.retrying),
            row("dead", |queue| queue.dead),
        ];
        if let Some((outbox, inbox)) = &self.done {
            rows.push([
                "done".to_owned(),
                outbox.done.to_string(),
                inbox.done.to_string(),
            ]);
            rows.push([
                "only seen".to_owned(),
                String::new(),
                inbox.seen.to_string(),
            ]);
        }
        let oldest = |queue: &QueueStats| queue.oldest_ready.map_or("-".to_owned(), age::span);
        rows.push(["oldest ready".to_owned(), oldest(&outbox), oldest(&inbox)]);
        table::print(["", "outbox", "inbox"], &rows)?;
        let topics = |queue: &str, topics: &[TopicCounts]| {
            let row = |topic: &TopicCounts| {
                [
                    queue.to_owned(),
                    topic.topic.clone(),
                    topic.ready.to_string(),
                    topic.in_flight.to_string(),
                    topic.waiting.to_string(),
                    topic.dead.to_string(),
                    topic.oldest_ready.map_or("-".to_owned(), age::span),
                ]
            };
            topics.iter().map(row).collect::<Vec<_>>()
        };
        let mut rows = topics("outbox", &self.outbox_topics);
        rows.extend(topics("inbox", &self.inbox_topics));
        if rows.is_empty() {
            return Ok(());
        }
        out::line("")?;
        table::print(
            [
                "queue",
                "topic",
                "ready",
                "in flight",
                "waiting",
                "dead",
                "oldest ready",
            ],
            &rows,
        )
    }
}

fn queue_json(queue: &QueueStats, topics: &[TopicCounts]) -> Value {
    let topics: Vec<Value> = topics
        .iter()
        .map(|topic| {
            json!({
                "topic": topic.topic,
                "ready": topic.ready,
                "in_flight": topic.in_flight,
                "waiting": topic.waiting,
                "dead": topic.dead,
                "oldest_ready_seconds": topic.oldest_ready.map(|age| age.as_secs_f64()),
            })
        })
        .collect();
    json!({
        "ready": queue.ready,
        "in_flight": queue.in_flight,
        "scheduled": queue.scheduled,
        "retrying": queue.retrying,
        "dead": queue.dead,
        "oldest_ready_seconds": queue.oldest_ready.map(|age| age.as_secs_f64()),
        "topics": topics,
    })
}
