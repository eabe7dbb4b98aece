//! Helpers for the tests of programs that use postroom, behind the feature `testing`: a store in memory,
//! time that passes when it is told to, and expectations of what was enqueued.
//!
//! ```toml
//! [dev-dependencies]
//! postroom = { version = "0.1", features = ["testing"] }
//! ```
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! use std::time::Duration;
//! use postroom::testing::TestRoom;
//! use postroom::{Delivery, HandlerError, Message, Outcome};
//! use serde_json::json;
//!
//! let room = TestRoom::new().await?;
//!
//! // What the code under test has enqueued.
//! room.outbox().enqueue(&Message::new("order.created", r#"{"id":7,"total":100}"#)).await?;
//! room.expect_enqueued("order.created").payload_json(&json!({"id": 7})).times(1).await;
//! room.refute_enqueued("order.cancelled").await;
//!
//! // What handlers make of it, retries included, without waiting for them.
//! let dispatcher = room.dispatcher().on("order.created", |delivery: Delivery| async move {
//!     if delivery.attempt() < 3 {
//!         return Err(HandlerError::business("the courier does not answer"));
//!     }
//!     Ok(Outcome::enqueue([Message::new("parcel.sent", "{}")]))
//! });
//! assert_eq!(dispatcher.drain().await?.retried, 1);
//! let report = room.drain_for(&dispatcher, Duration::from_secs(60)).await?;
//! assert_eq!(report.done, 1);
//! room.expect_enqueued("parcel.sent").await;
//! # Ok::<(), postroom::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod expectation;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

pub use expectation::Expectation;

use crate::dispatch::{Dispatcher, Report};
use crate::error::{Error, ErrorKind};
use crate::inbound::Inbound;
use crate::message::{InboxMessage, Message, OutboxMessage, State};
use crate::options::Options;
use crate::room::Postroom;
use crate::sql::{By, Dialect, Queue, Script, render};
use crate::store::duration_micros;

/// A store for one test: everything that a [`Postroom`] is, and what only a test may do.
///
/// As many as you like can be open in one process; none sees the others' messages.
#[derive(Debug)]
pub struct TestRoom {
    room: Postroom,
    /// The store has a schema that was made for it, and may be dropped.
    has_own_schema: bool,
}

impl TestRoom {
    /// A fresh store in memory, deployed. It is gone when the last clone of its room is.
    ///
    /// # Errors
    /// When SQLite fails.
    pub async fn new() -> Result<Self, Error> {
        let options = Options::new("sqlite::memory:").deploy(true);
        Ok(options.connect().await?.into())
    }

    /// A fresh store in a database that exists, such as a PostgreSQL server for tests: in a schema of its
    /// own (on SQLite: with a prefix of its own), deployed. [`TestRoom::remove`] takes it away again.
    ///
    /// # Errors
    /// When the database cannot be reached or does not let us create a schema.
    pub async fn on(url: &str) -> Result<Self, Error> {
        let schema = format!("test_{}", uuid::Uuid::now_v7().simple());
        let options = Options::new(url).schema(&schema).connections(4);
        Ok(Self {
            room: options.deploy(true).connect().await?,
            has_own_schema: true,
        })
    }

    /// Drops the schema that [`TestRoom::on`] has made on PostgreSQL or SQL Server. Does nothing to any other
    /// store.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn remove(self) -> Result<(), Error> {
        let text = match self.dialect() {
            Dialect::Postgres if self.has_own_schema => {
                include_str!("../sql/postgres/drop_schema.sql")
            }
            Dialect::SqlServer if self.has_own_schema => {
                include_str!("../sql/mssql/drop_schema.sql")
            }
            _ => return Ok(()),
        };
        let call = self.script(Queue::Outbox, text).call(Vec::new());
        self.store.db.run(vec![call]).await.map(drop)
    }

    /// Lets time pass for everything in the store: due times and retries come, leases expire, what is done
    /// gets older. It moves all stored times into the past; no clock is touched. For a handler that is
    /// running, it is as if its process had slept for that long.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # use std::time::{Duration, SystemTime};
    /// # use postroom::{Delivery, Message, testing::TestRoom};
    /// # let room = TestRoom::new().await?;
    /// let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
    /// room.outbox().enqueue(&Message::new("reminder", "").due_at(tomorrow)).await?;
    /// let dispatcher = room.dispatcher().on("reminder", |_: Delivery| async {});
    ///
    /// assert_eq!(dispatcher.drain().await?.done, 0);
    /// room.advance(Duration::from_secs(24 * 3600)).await?;
    /// assert_eq!(dispatcher.drain().await?.done, 1);
    /// # Ok::<(), postroom::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When `time` is longer than a year and when the database fails.
    pub async fn advance(&self, time: Duration) -> Result<(), Error> {
        let micros = duration_micros("time", time)?;
        let text = match self.dialect() {
            Dialect::Postgres => include_str!("../sql/postgres/advance.sql"),
            Dialect::Sqlite => include_str!("../sql/sqlite/advance.sql"),
            Dialect::MySql => include_str!("../sql/mysql/advance.sql"),
            Dialect::SqlServer => include_str!("../sql/mssql/advance.sql"),
        };
        let call = self.script(Queue::Outbox, text).call(vec![micros.into()]);
        self.store.run("advance", "store", vec![call]).await?;
        for queue in [Queue::Outbox, Queue::Inbox] {
            self.store.wake(queue).wake();
        }
        Ok(())
    }

    /// Handles messages as [`Dispatcher::drain`] does, while `time` passes: whatever becomes ready in it
    /// (retries, due times, what they enqueue) is handled when it is ready. It takes only as long as the
    /// handlers do. What others hold under a lease is left alone.
    ///
    /// # Errors
    /// When the dispatcher is another store's, when `time` is longer than a year, and as
    /// [`Dispatcher::drain`].
    pub async fn drain_for(
        &self,
        dispatcher: &Dispatcher,
        time: Duration,
    ) -> Result<Report, Error> {
        /// Keeps a message that is ready, and that nobody can take, from stopping the time.
        const SHORTEST_STEP: Duration = Duration::from_millis(1);
        duration_micros("time", time)?;
        let mut report = self.drain(dispatcher).await?;
        let mut left = time;
        while !left.is_zero() {
            let step = match self.next_ready(dispatcher).await? {
                Some(wait) => wait.max(SHORTEST_STEP).min(left),
                None => left,
            };
            self.advance(step).await?;
            left -= step;
            report += self.drain(dispatcher).await?;
        }
        Ok(report)
    }

    /// Enqueues a message, handles it with all else that is ready, and gives it back as it then is: done,
    /// dead, or ready for its next attempt, with its last error.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # use postroom::{Delivery, HandlerError, Message, State, testing::TestRoom};
    /// # let room = TestRoom::new().await?;
    /// let dispatcher = room.dispatcher().on("order.created", |_: Delivery| async {
    ///     Err::<(), _>(HandlerError::permanent("no such street"))
    /// });
    /// let message = room.perform(&dispatcher, &Message::new("order.created", "{}")).await?;
    /// assert_eq!(message.state, State::Dead);
    /// assert_eq!(message.progress.last_error.as_deref(), Some("[BUSINESS] no such street"));
    /// # Ok::<(), postroom::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Outbox::enqueue`](crate::Outbox::enqueue) and [`Dispatcher::drain`]; `NotFound` when the store
    /// keeps no done messages ([`Options::keep_done`]) and it is done.
    pub async fn perform(
        &self,
        dispatcher: &Dispatcher,
        message: &Message,
    ) -> Result<OutboxMessage, Error> {
        let receipt = self.outbox().enqueue(message).await?;
        self.drain(dispatcher).await?;
        let found = self.outbox().get(receipt.work_item_id).await?;
        found.ok_or_else(|| gone("outbox message"))
    }

    /// As [`TestRoom::perform`], for an inbound message.
    ///
    /// # Errors
    /// As [`Inbox::enqueue`](crate::Inbox::enqueue) and [`Dispatcher::drain`].
    pub async fn perform_inbound(
        &self,
        dispatcher: &Dispatcher,
        inbound: &Inbound,
    ) -> Result<InboxMessage, Error> {
        self.inbox().enqueue(inbound).await?;
        self.drain(dispatcher).await?;
        let found = self.inbox().get(&inbound.id).await?;
        found.ok_or_else(|| gone("inbox message"))
    }

    /// Expects messages of this topic that wait in the outbox, or are being handled: at least one, unless
    /// [`Expectation::times`] says how many. Await it; it gives the messages back.
    ///
    /// # Panics
    /// When it is awaited and there is no such message. The panic says what was expected and which topics
    /// there are, and never what a payload holds.
    #[track_caller]
    pub fn expect_enqueued(&self, topic: impl Into<String>) -> Expectation<'_> {
        Expectation::new(&self.room, topic.into(), &[State::Ready, State::InFlight])
    }

    /// Expects that no such message waits in the outbox: see [`TestRoom::expect_enqueued`].
    ///
    /// # Panics
    /// When it is awaited and there is one.
    #[track_caller]
    pub fn refute_enqueued(&self, topic: impl Into<String>) -> Expectation<'_> {
        self.expect_enqueued(topic).times(0)
    }

    /// Expects messages of this topic that are done: see [`TestRoom::expect_enqueued`].
    ///
    /// # Panics
    /// When it is awaited and there is none.
    #[track_caller]
    pub fn expect_done(&self, topic: impl Into<String>) -> Expectation<'_> {
        Expectation::new(&self.room, topic.into(), &[State::Done])
    }

    /// Expects messages of this topic that are dead: see [`TestRoom::expect_enqueued`].
    ///
    /// # Panics
    /// When it is awaited and there is none.
    #[track_caller]
    pub fn expect_dead(&self, topic: impl Into<String>) -> Expectation<'_> {
        Expectation::new(&self.room, topic.into(), &[State::Dead])
    }

    async fn drain(&self, dispatcher: &Dispatcher) -> Result<Report, Error> {
        if !dispatcher.is_for(&self.room) {
            return Err(ErrorKind::InvalidArgument {
                param: "dispatcher",
            }
            .with("it belongs to another store; make it with `room.dispatcher()`"));
        }
        dispatcher.drain().await
    }

    /// How long until a queue of the dispatcher has something to do, `None` when nothing waits.
    async fn next_ready(&self, dispatcher: &Dispatcher) -> Result<Option<Duration>, Error> {
        let text = match self.dialect() {
            Dialect::Postgres => include_str!("../sql/postgres/next_ready.sql"),
            Dialect::Sqlite => include_str!("../sql/sqlite/next_ready.sql"),
            Dialect::MySql => include_str!("../sql/mysql/next_ready.sql"),
            Dialect::SqlServer => include_str!("../sql/mssql/next_ready.sql"),
        };
        let mut next = None;
        for (queue, _) in dispatcher.queues() {
            let call = self.script(queue, text).call(Vec::new());
            for mut row in self.store.read("next_ready", queue.name(), call).await? {
                let wait = row
                    .optional_int()?
                    .map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0)));
                next = [next, wait].into_iter().flatten().min();
            }
        }
        Ok(next)
    }

    fn script(&self, queue: Queue, text: &str) -> Arc<Script> {
        let names = &self.store.names;
        let table = match queue {
            Queue::Outbox => &names.outbox,
            Queue::Inbox => &names.inbox,
        };
        let dialect = self.dialect();
        Script::parse(dialect, &render(dialect, names, table, By::WorkItem, text))
    }
}

fn gone(what: &'static str) -> Error {
    ErrorKind::NotFound { what }.with("it is done, and the store keeps no done messages")
}

/// A room that the code under test has opened itself.
impl From<Postroom> for TestRoom {
    fn from(room: Postroom) -> Self {
        Self {
            room,
            has_own_schema: false,
        }
    }
}

impl Deref for TestRoom {
    type Target = Postroom;

    fn deref(&self) -> &Postroom {
        &self.room
    }
}
