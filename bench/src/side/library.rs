//! postroom itself: its calls, and its dispatcher with a handler that does nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use postroom::{
    Delivery, Dispatcher, Fleet, Inbound, Message, NewJoin, Options, OwnerToken, Postroom, Running,
};
use tokio_postgres::NoTls;

use super::{
    Arguments, BATCH, BULK, DRAINERS, LEASE, Side, TOPIC, age, all, latency, payload, thinned,
    timed,
};
use crate::protocol::{Answer, Queue, Request};

/// What a dispatcher beside producers may take at once: whatever has come meanwhile.
const DISPATCH_BATCH: usize = 500;
/// How many messages belong to one join.
const STEPS: usize = 100;
/// Connections of a fleet for each of its stores: with two, none is ever closed for another.
const STORE_CONNECTIONS: usize = 2;
const STALLED: Duration = Duration::from_secs(60);

pub(crate) struct Library {
    url: String,
    schemas: Vec<String>,
    keep_done: bool,
    archive: bool,
    rooms: Vec<Postroom>,
    fleet: Option<Fleet>,
    running: Option<Running>,
}

impl Library {
    pub(crate) async fn open(
        url: &str,
        schema: Option<&str>,
        arguments: &Arguments,
    ) -> Result<Self> {
        let schema = schema.unwrap_or_default();
        let mut library = Self {
            url: url.to_owned(),
            schemas: vec![schema.to_owned()],
            keep_done: arguments.keep_done,
            archive: !arguments.no_archive,
            rooms: Vec::new(),
            fleet: None,
            running: None,
        };
        let Some(stores) = arguments.stores else {
            library.rooms = vec![library.options(schema).connect().await?];
            return Ok(library);
        };
        library.schemas = (0..stores)
            .map(|store| format!("{schema}{store}"))
            .collect();
        let mut fleet = Fleet::builder().connections((stores * STORE_CONNECTIONS).max(16));
        for schema in &library.schemas {
            fleet = fleet.store(schema.as_str(), library.options(schema));
        }
        let fleet = fleet.open().await?;
        for schema in &library.schemas {
            library.rooms.push(fleet.room(schema.as_str())?);
        }
        library.fleet = Some(fleet);
        Ok(library)
    }

    fn options(&self, schema: &str) -> Options {
        let options = Options::new(&self.url)
            .dev_profile()
            .keep_done(self.archive);
        if schema.is_empty() {
            options
        } else {
            options.schema(schema)
        }
    }

    fn room(&self) -> &Postroom {
        &self.rooms[0]
    }

    /// The same store over connections of its own, as another process would have it.
    async fn again(&self) -> Result<Postroom> {
        Ok(self.options(&self.schemas[0]).connect().await?)
    }

    async fn clean(&self) -> Result<()> {
        let done = if self.keep_done {
            &[][..]
        } else {
            &["outbox_done", "inbox_done"]
        };
        let tables = [
            "outbox",
            "inbox",
            "inbox_seen",
            "outbox_join_member",
            "outbox_join",
        ];
        let tables: Vec<&str> = tables.iter().chain(done).copied().collect();
        if let Some(path) = self.url.strip_prefix("sqlite:") {
            let connection = rusqlite::Connection::open(path)?;
            connection.busy_timeout(Duration::from_secs(60))?;
            for table in tables {
                connection.execute(&format!("DELETE FROM {table}"), [])?;
            }
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        } else if self.url.starts_with("mysql:") {
            let mut connection = mysql_async::Conn::from_url(&self.url).await?;
            connection.query_drop("SET foreign_key_checks = 0").await?;
            for table in tables {
                connection
                    .query_drop(format!("TRUNCATE TABLE {table}"))
                    .await?;
            }
            connection.disconnect().await?;
        } else {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
            tokio::spawn(connection);
            for schema in &self.schemas {
                let tables: Vec<String> = tables
                    .iter()
                    .map(|table| format!("\"{schema}\".{table}"))
                    .collect();
                let truncate = format!("TRUNCATE {} CASCADE", tables.join(", "));
                client.batch_execute(&truncate).await?;
            }
        }
        Ok(())
    }

    async fn enqueue(&self, tasks: usize, each: usize, queue: Queue) -> Result<()> {
        let work = (0..tasks).map(|task| {
            let room = self.rooms[task % self.rooms.len()].clone();
            tokio::spawn(async move {
                for number in 0..each {
                    match queue {
                        Queue::Outbox => drop(room.outbox().enqueue(&message()).await?),
                        Queue::Inbox => {
                            let id = format!("{task}-{number}");
                            let inbound = Inbound::new("bench", id, TOPIC, payload());
                            room.inbox().enqueue(&inbound).await?;
                        }
                    }
                }
                anyhow::Ok(())
            })
        });
        all(work).await
    }

    async fn fill(&self, messages: usize, joins: bool) -> Result<()> {
        let batch = BULK.min(messages / self.rooms.len());
        for number in 0..messages / batch {
            let room = &self.rooms[number % self.rooms.len()];
            let mut messages: Vec<Message> = (0..batch).map(|_| message()).collect();
            if joins {
                let steps = i64::try_from(STEPS)?;
                for steps_of_one in messages.chunks_mut(STEPS) {
                    let join = room.joins().start(&NewJoin::new(steps.try_into()?)).await?;
                    for message in steps_of_one {
                        *message = message.clone().join(join);
                    }
                }
            }
            room.outbox().enqueue_many(&messages).await?;
        }
        Ok(())
    }

    async fn drain(&self, messages: usize, queue: Queue) -> Result<()> {
        let running = self.dispatch(queue)?;
        until_done(&running, messages as u64).await?;
        running.stop().await;
        Ok(())
    }

    fn dispatch(&self, queue: Queue) -> Result<Running> {
        let dispatcher = self.dispatcher().batch(BATCH);
        let handler = |_: Delivery| async {};
        let dispatcher = match queue {
            Queue::Outbox => dispatcher.on(TOPIC, handler),
            Queue::Inbox => dispatcher.on_inbound(TOPIC, handler),
        };
        Ok(dispatcher.start()?)
    }

    fn dispatcher(&self) -> Dispatcher {
        match &self.fleet {
            Some(fleet) => fleet.dispatcher(),
            None => self.room().dispatcher(),
        }
    }

    /// Two tasks claim and ack until nothing is left, over connections that they open first.
    async fn drain_by_hand(&self) -> Result<()> {
        let room = self.again().await?;
        let work = (0..DRAINERS).map(|_| {
            let outbox = room.outbox();
            tokio::spawn(async move {
                loop {
                    let owner = OwnerToken::new();
                    let claimed = outbox.claim(owner, LEASE, BATCH).await?;
                    if claimed.is_empty() {
                        return anyhow::Ok(());
                    }
                    let ids: Vec<_> = claimed.iter().map(|message| message.id).collect();
                    outbox.ack(owner, &ids).await?;
                }
            })
        });
        all(work).await
    }

    /// Producers while a dispatcher over other connections drains what they enqueue.
    async fn enqueue_dispatching(&self, tasks: usize, each: usize) -> Result<Answer> {
        let other = self.again().await?;
        let running = other.dispatcher().batch(DISPATCH_BATCH);
        let running = running.on(TOPIC, |_: Delivery| async {}).start()?;
        // It runs when it has handled something: connections and plans are made by then.
        other.outbox().enqueue(&message()).await?;
        until_done(&running, 1).await?;
        let answer = timed(tasks * each, self.enqueue(tasks, each, Queue::Outbox)).await;
        running.stop().await;
        answer
    }

    async fn steady(&self, seconds: u64, producers: usize) -> Result<Answer> {
        let delays = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&delays);
        let other = self.again().await?;
        let running = other
            .dispatcher()
            .batch(DISPATCH_BATCH)
            .on(TOPIC, move |delivery: Delivery| {
                let delay = age(delivery.payload());
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.extend(delay);
                async {}
            })
            .start()?;
        let started = Instant::now();
        let until = started + Duration::from_secs(seconds);
        let work: Vec<_> = (0..producers)
            .map(|_| {
                let outbox = self.room().outbox();
                tokio::spawn(async move {
                    let mut sent = 0;
                    while Instant::now() < until {
                        outbox.enqueue(&message()).await?;
                        sent += 1;
                    }
                    anyhow::Ok(sent)
                })
            })
            .collect();
        let mut sent = 0;
        for producer in work {
            sent += producer.await??;
        }
        until_done(&running, sent).await?;
        let elapsed = started.elapsed();
        running.stop().await;
        let delays = std::mem::take(&mut *delays.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Answer {
            messages: usize::try_from(sent)?,
            seconds: elapsed.as_secs_f64(),
            delays: thinned(delays),
            error: None,
        })
    }
}

impl Side for Library {
    async fn answer(&mut self, request: Request) -> Result<Answer> {
        match request {
            Request::Clean => timed(0, self.clean()).await,
            Request::Enqueue {
                tasks,
                each,
                dispatching: true,
                ..
            } => self.enqueue_dispatching(tasks, each).await,
            Request::Enqueue {
                tasks, each, queue, ..
            } => timed(tasks * each, self.enqueue(tasks, each, queue)).await,
            Request::Fill { messages, joins } => timed(messages, self.fill(messages, joins)).await,
            Request::Drain {
                messages,
                by_hand: true,
                ..
            } => timed(messages, self.drain_by_hand()).await,
            Request::Drain {
                messages, queue, ..
            } => timed(messages, self.drain(messages, queue)).await,
            Request::Latency { samples } => {
                latency::dispatcher(self.room(), &self.again().await?, samples).await
            }
            Request::Steady { seconds, producers } => self.steady(seconds, producers).await,
            Request::Dispatch => {
                self.running = Some(self.dispatch(Queue::Outbox)?);
                Ok(Answer::default())
            }
            Request::Handled => {
                let running = self.running.as_ref().context("a dispatcher")?;
                Ok(Answer {
                    messages: usize::try_from(running.report().done)?,
                    ..Answer::default()
                })
            }
            Request::Stop => {
                let Some(running) = self.running.take() else {
                    bail!("no dispatcher runs");
                };
                running.stop().await;
                Ok(Answer::default())
            }
        }
    }
}

/// A message as every contender enqueues it.
pub(super) fn message() -> Message {
    Message::new(TOPIC, payload()).correlation("bench")
}

/// Waits until so many are done, as long as there is progress.
async fn until_done(running: &Running, messages: u64) -> Result<()> {
    let (mut before, mut since) = (0, Instant::now());
    loop {
        let done = running.report().done;
        if done >= messages {
            return Ok(());
        }
        if done > before {
            (before, since) = (done, Instant::now());
        }
        if since.elapsed() > STALLED {
            bail!("{done} of {messages} are done, and no more for a minute");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
