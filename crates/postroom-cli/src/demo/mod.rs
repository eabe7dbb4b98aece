//! `postroom demo`: a small shop, told step by step with numbers from the database.

mod bank;
mod handlers;
mod shop;
mod stage;
mod story;

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use indicatif::ProgressBar;
use postroom::{
    Counts, InboxCounts, JoinId, JoinStatus, JoinWait, List, Message, NewJoin, Postroom, State,
    WorkItemId, stop_signal,
};
use reqwest::StatusCode;

use crate::progress;
use crate::serve::Service;
use bank::{Answers, Bank};
use handlers::{NO_STREET, POISON, Parcels, fails_once};
use shop::Payment;
use stage::Stage;
use story::Story;

/// See it work: orders, webhooks, failures, a join and a dashboard, in a few seconds
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom demo                   on a temporary SQLite file
  postroom demo --keep            and leave the file, to look into it
  postroom demo --stay            and leave the dashboard open until Ctrl-C
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

    /// Leave the dashboard open at the end until Ctrl-C [default: on a terminal]
    #[arg(long, overrides_with = "leave")]
    stay: bool,

    /// End at the end, on a terminal too
    #[arg(long)]
    leave: bool,

    /// How many orders are placed, at least 10
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(10..=100_000))]
    orders: i64,
}

/// One payment in so many is declined.
const DECLINED: i64 = 5;

/// How many parcels leave in the last chapter, each after three steps.
const PARCELS: usize = 5;

/// How long the dispatcher may make no progress.
const PATIENCE: Duration = Duration::from_secs(30);

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let started = Instant::now();
        let stays = self.stay || (!self.leave && std::io::stdout().is_terminal());
        let mut stage = Stage::set(self.url.as_deref()).await?;
        let mut story = Story::new();
        let told = tell(&mut story, &mut stage, self.orders, stays, started).await;
        let left_behind = stage.clear(self.keep).await?;
        told?;
        story.end(left_behind)
    }
}

async fn tell(
    story: &mut Story,
    stage: &mut Stage,
    orders: i64,
    stays: bool,
    started: Instant,
) -> anyhow::Result<()> {
    story.open(stage.room.identifier())?;
    let placed = place_orders(story, stage, orders).await?;
    let parcels = Parcels {
        book: stage.shop.book("parcels"),
        ..Parcels::default()
    };
    let (key, webhook) = Bank::open();
    let mut config = stage.config();
    config.server.bind.set_port(0);
    config.auth.local_payloads = true;
    config.webhooks.push(webhook);
    let book_payment = stage.shop.book("payments");
    let service = Service::start(config, "", |dispatcher| {
        Ok(handlers::install(dispatcher, &parcels, book_payment))
    })
    .await?;
    story.line(&format!("Look on: http://{}/", service.address))?;
    let told = async {
        work_off(story, stage, &service, &parcels, &placed).await?;
        let bank = Bank::new(key, service.address)?;
        let refused = take_in(story, stage, &service, &bank, &placed).await?;
        join(story, &stage.room).await?;
        add_up(story, &stage.room, placed.len() as u64, refused).await?;
        story.reckon(started.elapsed())
    };
    let told = told.await;
    if told.is_ok() && stays {
        story.line(&format!(
            "The dashboard is still there: http://{}/ (Ctrl-C ends the demo)",
            service.address
        ))?;
        stop_signal().await;
    }
    service.stop().await;
    told
}

/// Orders and their messages, committed or rolled back together. Gives back those that were committed.
async fn place_orders(
    story: &mut Story,
    stage: &mut Stage,
    orders: i64,
) -> anyhow::Result<Vec<i64>> {
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
    Ok(in_shop)
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

/// A dispatcher handles the messages: most at once, some at the second attempt, one never.
async fn work_off(
    story: &mut Story,
    stage: &mut Stage,
    service: &Service,
    parcels: &Parcels,
    placed: &[i64],
) -> anyhow::Result<()> {
    story.title("2. A dispatcher gives them to a handler, which books parcels")?;
    let outbox = stage.room.outbox();
    let (all, retried) = (
        placed.len() as u64,
        placed.iter().filter(|order| fails_once(**order)).count(),
    );
    let bar = progress::bar("handling messages", all);
    let started = Instant::now();
    settled(service, all, &bar).await?;
    bar.finish_and_clear();
    story.line(&format!(
        "{all} messages were handled in {} ms. A parcel and the ack of its message are one transaction.",
        started.elapsed().as_millis()
    ))?;
    story.line(&format!(
        "{retried} orders failed after their parcel was booked: the courier does not answer."
    ))?;
    story.line("That was rolled back, and tried again.")?;
    story.line(&format!(
        "Order {NO_STREET} was given up: there is no such street. Order {POISON} is poison: it failed three times."
    ))?;
    story.check(
        "a stranger who tried to ack order 3, without its lease, changed nothing",
        &0,
        &parcels.stolen.load(Ordering::SeqCst),
    )?;
    story.check(
        "the database agrees: two messages are dead, the rest is done",
        &Counts {
            done: all - 2,
            dead: 2,
            ..Counts::default()
        },
        &outbox.counts().await?,
    )?;
    let without = |missing: &[i64]| -> Vec<i64> {
        let there = placed.iter().filter(|order| !missing.contains(order));
        there.copied().collect()
    };
    story.check(
        "every order but those two has its parcel, none has two",
        &without(&[NO_STREET, POISON]),
        &stage.shop.parcels().await?,
    )?;

    let dead = outbox.list(&List::new(State::Dead)).await?;
    for message in &dead {
        let error = message.progress.last_error.as_deref().unwrap_or_default();
        story.line(&format!("A dead letter says: {error}"))?;
    }
    parcels.is_mended.store(true, Ordering::SeqCst);
    let mended = NO_STREET.to_string();
    let ids: Vec<WorkItemId> = dead
        .iter()
        .filter(|message| message.correlation_id.as_ref() == Some(&mended))
        .map(|message| message.id)
        .collect();
    let replayed = outbox.replay(&ids).await?;
    settled(service, all + 1, &ProgressBar::hidden()).await?;
    story.line(&format!(
        "An operator mended order {NO_STREET} and replayed {} message; it was handled.",
        replayed.len()
    ))?;
    story.check(
        "now only the poisoned order has no parcel",
        &without(&[POISON]),
        &stage.shop.parcels().await?,
    )
}

/// Waits until the dispatcher has written so many as done or dead.
async fn settled(service: &Service, messages: u64, bar: &ProgressBar) -> anyhow::Result<()> {
    let mut last = (0, Instant::now());
    loop {
        let report = service.report();
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

/// The bank tells of payments by webhooks, of some more than once. Gives back how many were refused as
/// duplicates.
async fn take_in(
    story: &mut Story,
    stage: &mut Stage,
    service: &Service,
    bank: &Bank,
    placed: &[i64],
) -> anyhow::Result<u64> {
    story.title("3. The bank tells of payments by webhook, of some of them twice")?;
    let before = service.report();
    let bar = progress::bar("taking payments", placed.len() as u64);
    let started = Instant::now();
    let Answers {
        accepted,
        duplicates,
    } = bank.pay(placed, &bar).await?;
    bar.finish_and_clear();
    story.line(&format!(
        "{} signed requests came in {} ms: {accepted} were new, {duplicates} duplicates.",
        accepted + duplicates,
        started.elapsed().as_millis()
    ))?;
    let all = placed.len() as u64;
    settled(
        service,
        before.done + before.dead + all,
        &ProgressBar::hidden(),
    )
    .await?;
    story.check("every payment was accepted once", &all, &accepted)?;
    let forged = bank.forge(placed[0]).await?;
    story.line(
        "A request with a guessed key came, and one that says 999 instead of 100 under an old id.",
    )?;
    story.check(
        "both were refused: 401 for the key, 409 for the other amount",
        &[StatusCode::UNAUTHORIZED, StatusCode::CONFLICT],
        &forged,
    )?;
    story.check(
        "every payment is booked once",
        &placed.to_vec(),
        &stage.shop.payments().await?,
    )?;
    Ok(duplicates)
}

/// Parcels leave when three steps are done, each.
async fn join(story: &mut Story, room: &Postroom) -> anyhow::Result<()> {
    story.title("4. A parcel leaves when three steps are done")?;
    let (outbox, joins) = (room.outbox(), room.joins());
    let mut started = Vec::new();
    for parcel in 1..=PARCELS {
        let key = format!("parcel-{parcel}");
        let join = joins.start(&NewJoin::new(3).grouping_key(key)).await?;
        let send = JoinWait::new(join, "parcel.send", format!(r#"{{"parcel":{parcel}}}"#));
        joins.enqueue_wait(&send).await?;
        started.push(join);
    }
    story.line(&format!(
        "{PARCELS} joins of 3 steps were started, and a message waits for each."
    ))?;
    let begun = Instant::now();
    let steps = ["parcel.pick", "parcel.pack", "parcel.label"];
    let fan_out: Vec<Message> = started
        .iter()
        .flat_map(|join| steps.map(|topic| Message::new(topic, "{}").join(*join)))
        .collect();
    outbox.enqueue_many(&fan_out).await?;
    for join in &started {
        completed(room, *join).await?;
    }
    let sent = sent(room, PARCELS).await?;
    story.line(&format!(
        "{} steps were handled. The last ack of each join completed it, and woke its message.",
        fan_out.len()
    ))?;
    story.check("parcel.send went out once for each join", &PARCELS, &sent)?;
    story.line(&format!(
        "From the first step to the last parcel: {} ms.",
        begun.elapsed().as_millis()
    ))
}

async fn completed(room: &Postroom, id: JoinId) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let join = room.joins().get(id).await?.context("the join is gone")?;
        if join.status == JoinStatus::Completed {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "a join is not completed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How many parcels were sent, once nothing is on its way any more.
async fn sent(room: &Postroom, expected: usize) -> anyhow::Result<usize> {
    let begun = Instant::now();
    let list = List::new(State::Done).topic("parcel.send");
    loop {
        let counts = room.outbox().counts().await?;
        let sent = room.outbox().list(&list).await?.len();
        if counts.ready + counts.in_flight == 0 && sent >= expected {
            return Ok(sent);
        }
        ensure!(begun.elapsed() < PATIENCE, "only {sent} parcels were sent");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Every message that ever was must be somewhere.
async fn add_up(
    story: &mut Story,
    room: &Postroom,
    placed: u64,
    refused: u64,
) -> anyhow::Result<()> {
    story.title("5. The reckoning, from the database")?;
    let outbox = room.outbox().counts().await?;
    let inbox = room.inbox().counts().await?;
    // A join has three steps, a message that waits, and one that goes on.
    let joined = PARCELS as u64 * 5;
    let sent = 2 * placed + joined;
    let handled = outbox.done + inbox.done;
    let dead = outbox.dead + inbox.dead;
    let waiting = outbox.ready + outbox.in_flight + inbox.seen + inbox.processing;
    let lost = i128::from(sent) - i128::from(handled + dead + waiting);
    story.line(&format!(
        "{sent} sent, {handled} handled, {refused} duplicates refused, {dead} dead, {waiting} waiting, {lost} lost."
    ))?;
    story.check(
        &format!("outbox: {placed} orders + {joined} of joins, of which 1 is dead"),
        &Counts {
            done: placed + joined - 1,
            dead: 1,
            ..Counts::default()
        },
        &outbox,
    )?;
    story.check(
        &format!("inbox: {placed} payments done, nothing else"),
        &InboxCounts {
            done: placed,
            ..InboxCounts::default()
        },
        &inbox,
    )?;
    story.check("no message was lost", &0, &lost)
}
