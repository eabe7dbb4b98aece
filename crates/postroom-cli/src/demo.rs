//! `postroom demo`: a small shop, told step by step with numbers from the database.

use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use postroom::{
    Abandon, Arrival, Counts, Dialect, Inbound, InboxCounts, JoinStatus, JoinWait, List, Message,
    NewJoin, Options, OutboxMessage, OwnerToken, Postroom, State, WaitDecision, WorkItemId,
};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::shop::{Payment, Shop};
use crate::{progress, secret, store};

/// See it work: orders, messages, a worker, duplicates and a join, in a few seconds
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom demo                   on a temporary SQLite file
  postroom demo --keep            and leave the file, to look into it
  postroom demo --url postgres://postgres@localhost/postgres
                                  on PostgreSQL, in a schema of its own

The exit code is 0 only if every number in the database was as it should be.")]
pub(crate) struct Arguments {
    /// Where to run: sqlite:FILE or postgres://USER@HOST/DATABASE [default: a temporary SQLite file].
    /// POSTROOM_URL is not used here. The demo makes tables of its own and touches no others
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// Leave the demo's tables behind, to look at them
    #[arg(long)]
    keep: bool,

    /// How many orders are placed, at least 10
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(10..=100_000))]
    orders: i64,
}

/// One payment in so many is declined.
const DECLINED: i64 = 5;

const LEASE: Duration = Duration::from_secs(30);

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut stage = Stage::set(self.url.as_deref()).await?;
        let mut story = Story {
            out: std::io::stdout(),
            checks: 0,
            wrong: 0,
        };
        let told = tell(&mut story, &mut stage, self.orders).await;
        let left_behind = stage.clear(self.keep).await?;
        told?;
        story.end(started.elapsed(), left_behind)
    }
}

async fn tell(story: &mut Story, stage: &mut Stage, orders: i64) -> anyhow::Result<()> {
    story.open(stage.room.identifier())?;
    let placed = place_orders(story, stage, orders).await?;
    work_off(story, &stage.room, placed).await?;
    take_in(story, &stage.room).await?;
    join(story, &stage.room).await?;
    add_up(story, &stage.room, placed).await
}

/// Orders and their messages, committed or rolled back together. Gives back how many were committed.
async fn place_orders(story: &mut Story, stage: &mut Stage, orders: i64) -> anyhow::Result<u64> {
    story.title("1. An order and its message are written in one transaction")?;
    let bar = progress::bar("placing orders", orders.unsigned_abs());
    let started = Instant::now();
    for id in 1..=orders {
        let payment = if id % DECLINED == 0 {
            Payment::Declined
        } else {
            Payment::Accepted
        };
        stage.shop.place(&stage.room, id, payment).await?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    story.line(&format!(
        "{orders} orders were placed in {} ms; {} payments were declined and rolled back.",
        started.elapsed().as_millis(),
        orders / DECLINED
    ))?;
    let in_shop = stage.shop.orders().await?;
    let counts = stage.room.outbox().counts().await?;
    story.line(&format!(
        "The database has {} orders and {} messages.",
        in_shop.len(),
        counts.ready
    ))?;
    story.check(
        "every committed order has its message, and no rolled back one has",
        &in_shop,
        &messages_of_orders(&stage.room).await?,
    )?;
    Ok(in_shop.len() as u64)
}

/// The orders that the ready messages are about, in order.
async fn messages_of_orders(room: &Postroom) -> anyhow::Result<Vec<i64>> {
    let mut ids = Vec::new();
    let mut list = List::new(State::Ready).limit(1000);
    loop {
        let page = room.outbox().list(&list).await?;
        let Some(last) = page.last() else { break };
        list = list.after(last.id);
        for message in &page {
            ids.push(
                message
                    .correlation_id
                    .as_deref()
                    .context("a message without an order")?
                    .parse()?,
            );
        }
    }
    ids.sort_unstable();
    Ok(ids)
}

/// A worker handles the messages. One has to be tried again, one cannot be handled at all.
async fn work_off(story: &mut Story, room: &Postroom, placed: u64) -> anyhow::Result<()> {
    story.title("2. A worker claims messages, handles them, and acks them")?;
    let outbox = room.outbox();
    let bar = progress::bar("handling messages", placed);
    let started = Instant::now();
    let (mut abandoned, mut failed, mut stolen, mut acked) = (0, 0, 0, 0);
    let mut abandoned_at = started;
    loop {
        let owner = OwnerToken::new();
        let claimed = outbox.claim(owner, LEASE, 25).await?;
        if claimed.is_empty() {
            break;
        }
        let is_for =
            |message: &OutboxMessage, order: &str| message.correlation_id.as_deref() == Some(order);
        let of = |order: &str| -> Vec<WorkItemId> {
            claimed
                .iter()
                .filter(|message| is_for(message, order))
                .map(|message| message.id)
                .collect()
        };
        let (to_abandon, to_fail) = (of("1"), of("2"));
        let rest: Vec<WorkItemId> = claimed
            .iter()
            .map(|message| message.id)
            .filter(|id| !to_abandon.contains(id) && !to_fail.contains(id))
            .collect();
        stolen += outbox.ack(OwnerToken::new(), &rest).await?.len();
        let again = Abandon::after(Duration::from_millis(200)).error("the courier does not answer");
        if !to_abandon.is_empty() {
            abandoned_at = Instant::now();
        }
        abandoned += outbox.abandon(owner, &to_abandon, again).await?.len();
        failed += outbox
            .fail(owner, &to_fail, "there is no such street")
            .await?
            .len();
        acked += outbox.ack(owner, &rest).await?.len();
        bar.inc(claimed.len() as u64);
    }
    bar.finish_and_clear();
    story.line(&format!(
        "{acked} messages were acked in {} ms, in batches of 25.",
        started.elapsed().as_millis()
    ))?;
    story.check(
        "a stranger who tried to ack them, without their lease, changed nothing",
        &0,
        &stolen,
    )?;
    story.line("Order 1 was abandoned: the courier does not answer, try again in 0.2 s.")?;
    story.line("Order 2 failed for good: there is no such street.")?;
    let counts = outbox.counts().await?;
    story.check(
        "the database agrees: one waits for its retry, one is dead, the rest is done",
        &Counts {
            ready: abandoned as u64,
            in_flight: 0,
            done: placed - 2,
            dead: failed as u64,
        },
        &counts,
    )?;

    let retried = claim_one(room, "order.placed").await?;
    story.line(&format!(
        "Order 1 came back after {} ms: delivery {}, and its last error was \"{}\".",
        abandoned_at.elapsed().as_millis(),
        retried.message.progress.delivery_count,
        retried
            .message
            .progress
            .last_error
            .as_deref()
            .unwrap_or_default()
    ))?;
    outbox.ack(retried.owner, &[retried.message.id]).await?;

    let dead = outbox.list(&List::new(State::Dead)).await?;
    let ids: Vec<WorkItemId> = dead.iter().map(|message| message.id).collect();
    let replayed = outbox.replay(&ids).await?;
    let again = claim_one(room, "order.placed").await?;
    story.line(&format!(
        "An operator mended order 2 and replayed {} dead message; it was handled.",
        replayed.len()
    ))?;
    outbox.ack(again.owner, &[again.message.id]).await?;
    story.check(
        "all messages of all orders are done",
        &placed,
        &outbox.counts().await?.done,
    )
}

/// The same message may arrive any number of times.
async fn take_in(story: &mut Story, room: &Postroom) -> anyhow::Result<()> {
    story.title("3. The bank sends a message four times; it is handled once")?;
    let inbox = room.inbox();
    let payment = |payload: &str| {
        Inbound::new("bank", "payment-1", "payment.received", payload)
            .hash(Sha256::digest(payload).to_vec())
    };
    let first = inbox.enqueue(&payment(r#"{"amount":100}"#)).await?;
    story.line("It arrives: it is new, and queued.")?;
    let second = inbox.enqueue(&payment(r#"{"amount":100}"#)).await?;
    story.line("It arrives again while it waits: a duplicate, still queued once.")?;
    let owner = OwnerToken::new();
    let claimed = inbox.claim(owner, LEASE, 10).await?;
    let handled: Vec<WorkItemId> = claimed
        .iter()
        .filter_map(|message| message.work_item_id)
        .collect();
    inbox.ack(owner, &handled).await?;
    story.line(&format!(
        "A worker claims {} message and acks it.",
        claimed.len()
    ))?;
    let third = inbox.enqueue(&payment(r#"{"amount":100}"#)).await?;
    story.line("It arrives a third time: refused, it is done.")?;
    let fourth = inbox.enqueue(&payment(r#"{"amount":999}"#)).await?;
    story.line("It arrives with another amount: refused, and the different hash is reported.")?;
    story.check(
        "new, replaced, already done, already done",
        &[
            Arrival::New,
            Arrival::Replaced,
            Arrival::AlreadyDone,
            Arrival::AlreadyDone,
        ],
        &[first, second, third, fourth].map(|accepted| accepted.arrival),
    )?;
    story.check(
        "only the last had a different hash",
        &[false, false, false, true],
        &[first, second, third, fourth].map(|accepted| accepted.hash_differs),
    )?;
    story.check("the bank's message was handled once", &1, &handled.len())
}

/// Three steps, and a message that goes out when all are done.
async fn join(story: &mut Story, room: &Postroom) -> anyhow::Result<()> {
    story.title("4. A parcel leaves when three steps are done")?;
    let (outbox, joins) = (room.outbox(), room.joins());
    let steps = ["parcel.pick", "parcel.pack", "parcel.label"];
    let parcel = joins
        .start(&NewJoin::new(3).grouping_key("order-3"))
        .await?;
    outbox
        .enqueue_many(&steps.map(|topic| Message::new(topic, r#"{"order":3}"#).join(parcel)))
        .await?;
    joins
        .enqueue_wait(&JoinWait::new(parcel, "parcel.send", r#"{"order":3}"#))
        .await?;
    story.line("A join of 3 steps was started: pick, pack, label; and a message waits for it.")?;

    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 10).await?;
    let find = |topic: &str| {
        claimed
            .iter()
            .find(|message| message.topic == topic)
            .with_context(|| format!("no {topic}"))
    };
    let early = joins.handle_wait(owner, find("join.wait")?).await?;
    story.check(
        "handled too early, the waiting message is told to wait",
        &WaitDecision::NotReady,
        &early,
    )?;
    for topic in steps {
        outbox.ack(owner, &[find(topic)?.id]).await?;
        let join = joins.get(parcel).await?.context("the join is gone")?;
        story.line(&format!(
            "{topic} was acked: {} of {} steps.",
            join.completed_steps, join.expected_steps
        ))?;
    }
    let status = joins.get(parcel).await?.map(|join| join.status);
    story.check(
        "the last ack completed the join",
        &Some(JoinStatus::Completed),
        &status,
    )?;

    let completed = Instant::now();
    let woken = claim_one(room, "join.wait").await?;
    story.line(&format!(
        "That ack also woke the waiting message: claimed {} ms later.",
        completed.elapsed().as_millis()
    ))?;
    let decision = joins.handle_wait(woken.owner, &woken.message).await?;
    story.check(
        "the continuation was enqueued",
        &true,
        &matches!(decision, WaitDecision::Completed(_)),
    )?;
    let sent = claim_one(room, "parcel.send").await?;
    outbox.ack(sent.owner, &[sent.message.id]).await?;
    story.line("parcel.send went out, and was acked.")
}

/// Every message that ever was must be somewhere.
async fn add_up(story: &mut Story, room: &Postroom, placed: u64) -> anyhow::Result<()> {
    story.title("5. The numbers add up")?;
    let outbox = room.outbox().counts().await?;
    let inbox = room.inbox().counts().await?;
    story.line(&format!(
        "Outbox: {} ready, {} in flight, {} done, {} dead.",
        outbox.ready, outbox.in_flight, outbox.done, outbox.dead
    ))?;
    story.line(&format!(
        "Inbox: {} processing, {} done, {} dead.",
        inbox.processing, inbox.done, inbox.dead
    ))?;
    story.check(
        &format!(
            "outbox: {placed} orders + 3 steps + 1 wait + 1 parcel = {} done, nothing else",
            placed + 5
        ),
        &Counts {
            done: placed + 5,
            ..Counts::default()
        },
        &outbox,
    )?;
    story.check(
        "inbox: 1 done, nothing else",
        &InboxCounts {
            done: 1,
            ..InboxCounts::default()
        },
        &inbox,
    )
}

/// A message under a lease.
struct Claimed {
    owner: OwnerToken,
    message: OutboxMessage,
}

/// Waits for one message of a topic, for a few seconds.
async fn claim_one(room: &Postroom, topic: &str) -> anyhow::Result<Claimed> {
    let started = Instant::now();
    loop {
        let owner = OwnerToken::new();
        if let Some(message) = room.outbox().claim(owner, LEASE, 1).await?.pop() {
            ensure!(
                message.topic == topic,
                "expected a message of {topic}, got one of {}",
                message.topic
            );
            return Ok(Claimed { owner, message });
        }
        ensure!(
            started.elapsed() < Duration::from_secs(10),
            "no message of {topic} became ready in 10 seconds"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Where the demo plays: a store, and a shop beside it.
struct Stage {
    room: Postroom,
    shop: Shop,
    url: String,
    /// The schema (on SQLite: the prefix) that keeps the demo away from everything else.
    schema: Option<String>,
    /// The folder of a file that the demo has made for itself.
    folder: Option<TempDir>,
}

impl Stage {
    async fn set(url: Option<&str>) -> anyhow::Result<Self> {
        let (url, schema, folder) = match url {
            None => {
                let folder = tempfile::Builder::new()
                    .prefix("postroom-demo-")
                    .tempdir()?;
                (
                    format!("sqlite:{}", folder.path().join("demo.db").display()),
                    None,
                    Some(folder),
                )
            }
            Some("sqlite::memory:") => {
                bail!("the demo's shop and its store need a file to meet in: --url sqlite:demo.db")
            }
            Some(url) => (url.to_owned(), Some(fresh_name()), None),
        };
        let mut options = Options::new(&url)
            .worker("demo")
            .connections(4)
            .deploy(true);
        if let Some(schema) = &schema {
            options = options.schema(schema);
        }
        let room = store::connect(options, &url).await?;
        let shop = match room.dialect() {
            Dialect::Postgres => {
                Shop::postgres(&url, schema.as_deref().unwrap_or_default()).await?
            }
            _ => Shop::sqlite(&file_of(&url), schema.as_deref())?,
        };
        Ok(Self {
            room,
            shop,
            url,
            schema,
            folder,
        })
    }

    /// Takes the demo's tables away, unless they are to be kept. Says how to look at what is left.
    async fn clear(self, keep: bool) -> anyhow::Result<Option<String>> {
        let schema = self
            .schema
            .map(|schema| format!(" --schema {schema}"))
            .unwrap_or_default();
        let left_behind = format!("--url {}{schema}", secret::shown(&self.url));
        match (self.folder, self.room.dialect()) {
            (Some(folder), _) if keep => {
                let _ = folder.keep();
                Ok(Some(left_behind))
            }
            (Some(_), _) => Ok(None),
            (None, Dialect::Postgres) if !keep => {
                self.shop.close().await?;
                Ok(None)
            }
            (None, _) => Ok(Some(left_behind)),
        }
    }
}

fn fresh_name() -> String {
    let id = WorkItemId::new().to_string();
    format!("demo_{}", id.rsplit('-').next().unwrap_or_default())
}

fn file_of(url: &str) -> PathBuf {
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    Path::new(path.strip_prefix("//").unwrap_or(path)).to_owned()
}

/// What the demo says, and what it found to be right or wrong.
struct Story {
    out: std::io::Stdout,
    checks: u32,
    wrong: u32,
}

impl Story {
    fn open(&mut self, store: &str) -> anyhow::Result<()> {
        writeln!(
            self.out,
            "A shop, its orders and their messages, on {store}"
        )?;
        Ok(())
    }

    fn title(&mut self, title: &str) -> anyhow::Result<()> {
        writeln!(self.out, "\n{title}")?;
        Ok(())
    }

    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.out, "   {line}")?;
        Ok(())
    }

    fn check<T: PartialEq + Debug>(
        &mut self,
        what: &str,
        expected: &T,
        actual: &T,
    ) -> anyhow::Result<()> {
        self.checks += 1;
        if expected == actual {
            writeln!(self.out, " ✓ {what}")?;
        } else {
            self.wrong += 1;
            writeln!(
                self.out,
                " ✗ {what}: expected {expected:?}, found {actual:?}"
            )?;
        }
        Ok(())
    }

    fn end(mut self, took: Duration, left_behind: Option<String>) -> anyhow::Result<()> {
        ensure!(
            self.wrong == 0,
            "{} of {} checks failed; please report this",
            self.wrong,
            self.checks
        );
        writeln!(
            self.out,
            "\nAll {} checks passed, in {:.1} s.",
            self.checks,
            took.as_secs_f64()
        )?;
        writeln!(
            self.out,
            "\nTry next (in the source tree, write `cargo run --release --` for `postroom`):"
        )?;
        match left_behind {
            Some(store) => {
                writeln!(self.out, "  postroom outbox counts {store}")?;
                writeln!(self.out, "  postroom inbox counts {store}")?;
            }
            None => writeln!(
                self.out,
                "  postroom demo --keep                       leave the tables, to look at them"
            )?,
        }
        writeln!(
            self.out,
            "  postroom schema print --dialect postgres   see what a deployment creates"
        )?;
        writeln!(
            self.out,
            "  postroom --help                            and docs/getting-started.md: a first program"
        )?;
        Ok(())
    }
}
