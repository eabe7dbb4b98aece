//! `postroom demo`: a small shop, told step by step with numbers from the database.

use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use indicatif::ProgressBar;
use postroom::{
    Arrival, Counts, Delivery, Dialect, Handler, HandlerError, Inbound, InboxCounts, JoinStatus,
    JoinWait, List, Message, NewJoin, Options, Outcome, OwnerToken, Postroom, Running, State,
    WorkItemId, done,
};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::shop::{Payment, Shop};
use crate::{progress, secret, store};

/// See it work: orders, messages, handlers, duplicates and a join, in a few seconds
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

/// How long the dispatcher may make no progress.
const PATIENCE: Duration = Duration::from_secs(30);

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
    work_off(story, stage, placed).await?;
    let refused = take_in(story, &stage.room).await?;
    join(story, &stage.room).await?;
    add_up(story, &stage.room, placed, refused).await
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

/// Books a parcel for each order, in the transaction of the ack. One order has to be tried again, one
/// cannot be handled until somebody has mended it.
#[derive(Clone, Default)]
struct Parcels {
    book: String,
    is_mended: Arc<AtomicBool>,
    /// Acks by a stranger that had an effect.
    stolen: Arc<AtomicUsize>,
}

impl Handler for Parcels {
    async fn handle(&self, delivery: Delivery) -> Result<Outcome, HandlerError> {
        let order: i64 = delivery.correlation_id().unwrap_or_default().parse()?;
        if order == 3 {
            let stranger = OwnerToken::new();
            let ids = [delivery.work_item_id()];
            let acked = delivery.room().outbox().ack(stranger, &ids).await?;
            self.stolen.fetch_add(acked.len(), Ordering::SeqCst);
        }
        let mut transaction = delivery.transaction();
        transaction.execute(&self.book, vec![order.into()]).await?;
        match order {
            1 if delivery.attempt() == 1 => {
                let error = HandlerError::business("the courier does not answer");
                Err(error.retry_after(Duration::from_millis(200)))
            }
            2 if !self.is_mended.load(Ordering::SeqCst) => {
                Err(HandlerError::permanent("there is no such street"))
            }
            _ => done(),
        }
    }
}

/// A dispatcher handles the messages.
async fn work_off(story: &mut Story, stage: &Stage, placed: u64) -> anyhow::Result<()> {
    story.title("2. A dispatcher gives them to a handler, which books parcels")?;
    let outbox = stage.room.outbox();
    let parcels = Parcels {
        book: stage.shop.book_parcel(),
        ..Parcels::default()
    };
    let bar = progress::bar("handling messages", placed);
    let started = Instant::now();
    let running = stage
        .room
        .dispatcher()
        .on("order.placed", parcels.clone())
        .start()?;
    settled(&running, placed, &bar).await?;
    bar.finish_and_clear();
    story.line(&format!(
        "{placed} messages were handled in {} ms. A parcel and the ack of its message are one transaction.",
        started.elapsed().as_millis()
    ))?;
    story.line("Order 1 failed after its parcel was booked: the courier does not answer.")?;
    story.line("That was rolled back, and tried again 0.2 s later.")?;
    story.line("Order 2 was given up: there is no such street.")?;
    story.check(
        "a stranger who tried to ack order 3, without its lease, changed nothing",
        &0,
        &parcels.stolen.load(Ordering::SeqCst),
    )?;
    story.check(
        "the database agrees: one message is dead, the rest is done",
        &Counts {
            done: placed - 1,
            dead: 1,
            ..Counts::default()
        },
        &outbox.counts().await?,
    )?;
    let mut expected = stage.shop.orders().await?;
    expected.retain(|order| *order != 2);
    story.check(
        "every order but that one has its parcel, none has two",
        &expected,
        &stage.shop.parcels().await?,
    )?;

    let dead = outbox.list(&List::new(State::Dead)).await?;
    let ids: Vec<WorkItemId> = dead.iter().map(|message| message.id).collect();
    for message in &dead {
        let error = message.progress.last_error.as_deref().unwrap_or_default();
        story.line(&format!("The dead letter says: {error}"))?;
    }
    parcels.is_mended.store(true, Ordering::SeqCst);
    let replayed = outbox.replay(&ids).await?;
    settled(&running, placed + 1, &ProgressBar::hidden()).await?;
    story.line(&format!(
        "An operator mended the order and replayed {} message; it was handled.",
        replayed.len()
    ))?;
    let report = running.stop().await;
    story.check(
        "the dispatcher's report: so many done, 1 retried, 1 dead, no lease lost",
        &(placed, 1, 1, 0),
        &(report.done, report.retried, report.dead, report.lost),
    )?;
    story.check(
        "every order has its parcel, none has two",
        &stage.shop.orders().await?,
        &stage.shop.parcels().await?,
    )
}

/// Waits until the dispatcher has written so many as done or dead.
async fn settled(running: &Running, messages: u64, bar: &ProgressBar) -> anyhow::Result<()> {
    let mut last = (0, Instant::now());
    loop {
        let report = running.report();
        let settled = report.done + report.dead;
        bar.set_position(settled);
        if settled >= messages {
            return Ok(());
        }
        if settled > last.0 {
            last = (settled, Instant::now());
        }
        ensure!(
            last.1.elapsed() < PATIENCE,
            "only {settled} of {messages} messages were handled, and none for 30 seconds"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The same message may arrive any number of times. Gives back how many arrivals were refused.
async fn take_in(story: &mut Story, room: &Postroom) -> anyhow::Result<u64> {
    story.title("3. The bank sends a message four times; it is handled once")?;
    let inbox = room.inbox();
    let payment = |payload: &str| {
        Inbound::new("bank", "payment-1", "payment.received", payload)
            .hash(Sha256::digest(payload).to_vec())
    };
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let dispatcher = room
        .dispatcher()
        .on_inbound("payment.received", move |_: Delivery| {
            counted.fetch_add(1, Ordering::SeqCst);
            async {}
        });
    let first = inbox.enqueue(&payment(r#"{"amount":100}"#)).await?;
    story.line("It arrives: it is new, and queued.")?;
    let second = inbox.enqueue(&payment(r#"{"amount":100}"#)).await?;
    story.line("It arrives again while it waits: a duplicate, still queued once.")?;
    let report = dispatcher.drain().await?;
    story.line(&format!(
        "The dispatcher handles {} message.",
        report.handled()
    ))?;
    let third = inbox.enqueue(&payment(r#"{"amount":100}"#)).await?;
    story.line("It arrives a third time: refused, it is done.")?;
    let fourth = inbox.enqueue(&payment(r#"{"amount":999}"#)).await?;
    story.line("It arrives with another amount: refused, and the different hash is reported.")?;
    dispatcher.drain().await?;
    let arrivals = [first, second, third, fourth];
    story.check(
        "new, replaced, already done, already done",
        &[
            Arrival::New,
            Arrival::Replaced,
            Arrival::AlreadyDone,
            Arrival::AlreadyDone,
        ],
        &arrivals.map(|accepted| accepted.arrival),
    )?;
    story.check(
        "only the last had a different hash",
        &[false, false, false, true],
        &arrivals.map(|accepted| accepted.hash_differs),
    )?;
    story.check(
        "the bank's message was handled once",
        &1,
        &runs.load(Ordering::SeqCst),
    )?;
    let refused = arrivals
        .iter()
        .filter(|accepted| accepted.arrival != Arrival::New);
    Ok(refused.count() as u64)
}

/// Three steps, and a message that goes out when all are done.
async fn join(story: &mut Story, room: &Postroom) -> anyhow::Result<()> {
    story.title("4. A parcel leaves when three steps are done")?;
    let (outbox, joins) = (room.outbox(), room.joins());
    let handled = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&handled);
    // Nobody registers a handler for the waiting message: the dispatcher has one.
    let dispatcher = room.dispatcher().otherwise(move |delivery: Delivery| {
        let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.push(delivery.topic().to_owned());
        async {}
    });
    let parcel = joins
        .start(&NewJoin::new(3).grouping_key("order-3"))
        .await?;
    joins
        .enqueue_wait(&JoinWait::new(parcel, "parcel.send", r#"{"order":3}"#))
        .await?;
    story.line("A join of 3 steps was started, and a message waits for it.")?;
    let early = dispatcher.drain().await?;
    story.check(
        "handled too early, the waiting message is told to wait",
        &(1, 0),
        &(early.not_ready, early.done),
    )?;

    let steps = ["parcel.pick", "parcel.pack", "parcel.label"];
    outbox
        .enqueue_many(&steps.map(|topic| Message::new(topic, r#"{"order":3}"#).join(parcel)))
        .await?;
    let started = Instant::now();
    dispatcher.drain().await?;
    let join = joins.get(parcel).await?.context("the join is gone")?;
    story.line(&format!(
        "The steps were handled: {} of {}. The last ack completed the join, and woke the message.",
        join.completed_steps, join.expected_steps
    ))?;
    story.check(
        "the join is completed",
        &JoinStatus::Completed,
        &join.status,
    )?;
    let mut handled = std::mem::take(&mut *handled.lock().unwrap_or_else(PoisonError::into_inner));
    let last = handled.pop();
    handled.sort_unstable();
    let mut expected = steps.map(str::to_owned).to_vec();
    expected.sort_unstable();
    story.check(
        "parcel.send went out once, and after all steps",
        &(expected, Some("parcel.send".to_owned())),
        &(handled, last),
    )?;
    story.line(&format!(
        "From the first step to the end: {} ms.",
        started.elapsed().as_millis()
    ))
}

/// Every message that ever was must be somewhere.
async fn add_up(
    story: &mut Story,
    room: &Postroom,
    placed: u64,
    refused: u64,
) -> anyhow::Result<()> {
    story.title("5. The numbers add up")?;
    let outbox = room.outbox().counts().await?;
    let inbox = room.inbox().counts().await?;
    let sent = placed + 5 + 1;
    let handled = outbox.done + inbox.done;
    let dead = outbox.dead + inbox.dead;
    let waiting = outbox.ready + outbox.in_flight + inbox.seen + inbox.processing;
    let lost = i128::from(sent) - i128::from(handled + dead + waiting);
    story.line(&format!(
        "{sent} sent, {handled} handled, {refused} duplicates refused, {dead} dead, {waiting} waiting, {lost} lost."
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
    )?;
    story.check("no message was lost", &0, &lost)
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
