//! The dispatcher as its user sees it: handlers, settings, and the ways to run it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::engine::Engine;
use super::handler::{Handlers, IntoHandler, Registered};
use super::retry::{Backoff, RetryPolicy};
use super::run::{self, Report, Running};
use crate::error::{Error, ErrorKind};
use crate::fleet::{self, Fleet};
use crate::room::Postroom;
use crate::sql::Queue;
use crate::store::{LARGEST_BATCH, lease_micros};

/// Takes messages out of the queues of a store, or of all stores of a [fleet](Fleet), and gives them to
/// handlers: at least once, never the same message twice at once, and again after a failure for as long as
/// the policy says.
///
/// ```no_run
/// # async fn example(room: postroom::Postroom) -> Result<(), postroom::Error> {
/// use postroom::{Delivery, HandlerError, Json};
///
/// #[derive(serde::Deserialize)]
/// struct Order {
///     id: u64,
/// }
///
/// room.dispatcher()
///     .on("order.created", |order: Json<Order>| async move {
///         println!("shipping {}", order.id);
///         Ok::<_, HandlerError>(())
///     })
///     .on_inbound("payment.received", |delivery: Delivery| async move {
///         println!("{} bytes", delivery.payload().len());
///     })
///     .run_until(async { tokio::time::sleep(std::time::Duration::from_secs(60)).await })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a dispatcher does nothing until it is run"]
pub struct Dispatcher {
    place: Place,
    outbox: Handlers,
    inbox: Handlers,
    pub(crate) settings: Settings,
}

/// Where messages come from.
enum Place {
    Room(Postroom),
    Fleet(Fleet),
}

/// What becomes of a message whose topic nobody handles. It is logged at WARN in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NoHandler {
    /// Handed back for a minute, again and again, without using up an attempt: the default.
    #[default]
    Abandon,
    /// Dead.
    Fail,
    /// Done.
    Ack,
}

/// How a dispatcher behaves.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    pub(crate) batch: usize,
    pub(crate) chunk: Option<usize>,
    pub(crate) lease: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) error_delay: Duration,
    pub(crate) startup_delay: Duration,
    pub(crate) shutdown_deadline: Duration,
    pub(crate) handler_timeout: Option<Duration>,
    pub(crate) max_deliveries: Option<u32>,
    pub(crate) no_handler: NoHandler,
    pub(crate) listen: bool,
    pub(crate) retry: Arc<dyn RetryPolicy>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 32,
            batch: 50,
            chunk: None,
            lease: Duration::from_secs(30),
            poll_interval: Duration::from_millis(500),
            error_delay: Duration::from_secs(10),
            startup_delay: Duration::ZERO,
            shutdown_deadline: Duration::from_secs(30),
            handler_timeout: None,
            max_deliveries: None,
            no_handler: NoHandler::default(),
            listen: true,
            retry: Arc::new(Backoff::default()),
        }
    }
}

impl Postroom {
    /// A dispatcher for this store: register handlers, then run it.
    pub fn dispatcher(&self) -> Dispatcher {
        Dispatcher::of(Place::Room(self.clone()), Settings::default())
    }
}

impl Dispatcher {
    pub(crate) fn of_fleet(fleet: Fleet) -> Self {
        let settings = Settings {
            concurrency: 8,
            listen: false,
            ..Settings::default()
        };
        Self::of(Place::Fleet(fleet), settings)
    }

    fn of(place: Place, settings: Settings) -> Self {
        Self {
            place,
            outbox: Handlers::default(),
            inbox: Handlers::default(),
            settings,
        }
    }

    /// Handles outbox messages of exactly this topic, upper and lower case told apart. A handler is a
    /// [`Handler`](crate::Handler), or a closure that takes up to three of: the
    /// [`Delivery`](crate::Delivery), its payload as [`Json`](crate::Json), a transaction
    /// ([`Tx`](crate::Tx)).
    ///
    /// A topic has one handler: a second is refused when the dispatcher starts.
    pub fn on<Args>(mut self, topic: impl Into<String>, handler: impl IntoHandler<Args>) -> Self {
        self.outbox.add(topic.into(), Registered::new(handler));
        self
    }

    /// Handles inbox messages of exactly this topic: see [`Dispatcher::on`].
    pub fn on_inbound<Args>(
        mut self,
        topic: impl Into<String>,
        handler: impl IntoHandler<Args>,
    ) -> Self {
        self.inbox.add(topic.into(), Registered::new(handler));
        self
    }

    /// Handles the outbox messages that no other handler does, whatever their topic: a publisher, for
    /// one.
    pub fn otherwise<Args>(mut self, handler: impl IntoHandler<Args>) -> Self {
        self.outbox.otherwise(Registered::new(handler));
        self
    }

    /// Handles the inbox messages that no other handler does.
    pub fn otherwise_inbound<Args>(mut self, handler: impl IntoHandler<Args>) -> Self {
        self.inbox.otherwise(Registered::new(handler));
        self
    }

    /// How many handlers may run at once in each queue, 32 by default; in a fleet in each queue of each
    /// store, and 8 by default.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.settings.concurrency = handlers;
        self
    }

    /// How many messages one claim takes at most, 50 by default. For handlers that take microseconds, and a
    /// queue of thousands, 500 drain it several times as fast; what a crash leaves unsettled is
    /// delivered again, and that is more then.
    pub fn batch(mut self, messages: usize) -> Self {
        self.settings.batch = messages;
        self
    }

    /// Writes results down as soon as this many have gathered, all in one transaction. Fewer are
    /// redelivered after a crash, for more round trips. By default half a batch while it
    /// [runs](Dispatcher::start), a whole one in [`Dispatcher::drain`].
    pub fn chunk(mut self, results: usize) -> Self {
        self.settings.chunk = Some(results);
        self
    }

    /// How long a message is leased, 30 seconds by default. Leases renew by themselves at a third of this
    /// for as long as a handler runs; when the process dies, its messages are free after this time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// The longest pause between two looks at an idle queue, half a second by default. Most messages are
    /// found sooner, because enqueueing wakes the dispatcher; what becomes due, and what nobody could
    /// announce, is found by polling.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// The longest pause after the database has failed, 10 seconds by default. The first is a tenth of a
    /// second.
    pub fn error_delay(mut self, delay: Duration) -> Self {
        self.settings.error_delay = delay;
        self
    }

    /// How long to wait before the first look, nothing by default.
    pub fn startup_delay(mut self, delay: Duration) -> Self {
        self.settings.startup_delay = delay;
        self
    }

    /// How long handlers may go on after the dispatcher was told to stop, 30 seconds by default. What has
    /// not ended by then is cancelled and handed back without spending an attempt.
    pub fn shutdown_deadline(mut self, deadline: Duration) -> Self {
        self.settings.shutdown_deadline = deadline;
        self
    }

    /// How long a handler may take; without a limit by default, because leases renew by themselves. One
    /// that takes longer is cancelled, and the message is tried again.
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.settings.handler_timeout = Some(limit);
        self
    }

    /// Gives up on a message that was delivered this many times and never settled: it may be what kills
    /// its workers. Without a limit by default.
    ///
    /// A crash counts against all messages that were in flight. So the last delivery of such a message
    /// is alone among its like: the one that kills the process gives itself away, and the others are done.
    /// With a limit of 1 there is no second delivery, and they would be given up with it.
    pub fn max_deliveries(mut self, deliveries: u32) -> Self {
        self.settings.max_deliveries = Some(deliveries);
        self
    }

    /// What becomes of messages whose topic nobody handles.
    pub fn no_handler(mut self, policy: NoHandler) -> Self {
        self.settings.no_handler = policy;
        self
    }

    /// Whether and when failed messages are tried again: [`Backoff`] by default.
    pub fn retry(mut self, policy: impl RetryPolicy) -> Self {
        self.settings.retry = Arc::new(policy);
        self
    }

    /// Whether to listen for messages from other processes, as is the default. It takes a connection on
    /// PostgreSQL; without it, they are found by polling. Behind a pooler
    /// ([`Options::prepared_statements`](crate::Options::prepared_statements) off) nobody can listen. In a
    /// fleet it is off by default: it would take a connection per PostgreSQL store, beside the budget.
    pub fn listen(mut self, on: bool) -> Self {
        self.settings.listen = on;
        self
    }

    /// Runs until `stop` comes back, then stops as [`Running::stop`] does.
    ///
    /// ```no_run
    /// # async fn example(room: postroom::Postroom) -> Result<(), Box<dyn std::error::Error>> {
    /// let dispatcher = room.dispatcher().on("order.created", |_: postroom::Delivery| async {});
    /// dispatcher.run_until(postroom::stop_signal()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a setting or a handler's topic is not valid. Failures of the database are no errors here: they
    /// are logged, and the dispatcher goes on when it is back.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<Report, Error> {
        let running = self.start()?;
        stop.await;
        Ok(running.stop().await)
    }

    /// Starts it in the background.
    ///
    /// # Errors
    /// When a setting or a handler's topic is not valid.
    pub fn start(self) -> Result<Running, Error> {
        self.check()?;
        match &self.place {
            Place::Room(room) => Ok(run::start(self.engines(room)?)),
            Place::Fleet(fleet) => Ok(fleet::start(fleet, &self)),
        }
    }

    /// Claims one batch from each queue that has handlers, handles it and settles it. Says what became of
    /// the messages. In a fleet that is one batch from each queue of each store, several stores at a time,
    /// whatever the strategy.
    ///
    /// # Errors
    /// When a setting is not valid and when the database fails. In a fleet a store that fails is logged and
    /// left out; it is an error when all of them fail.
    pub async fn run_once(&self) -> Result<Report, Error> {
        self.check()?;
        match &self.place {
            Place::Room(room) => run::once(self.engines(room)?).await,
            Place::Fleet(fleet) => fleet::once(fleet, self).await,
        }
    }

    /// Handles messages until none is ready any more. What waits for a later attempt or a due time is left
    /// alone.
    ///
    /// # Errors
    /// As [`Dispatcher::run_once`].
    pub async fn drain(&self) -> Result<Report, Error> {
        self.drain_until(&CancellationToken::new()).await
    }

    /// As [`Dispatcher::drain`]; told to stop, it ends as [`Running::stop`] does.
    pub(crate) async fn drain_until(&self, stop: &CancellationToken) -> Result<Report, Error> {
        self.check()?;
        match &self.place {
            Place::Room(room) => run::drain(self.engines(room)?, stop).await,
            Place::Fleet(fleet) => fleet::drain(fleet, self, stop).await,
        }
    }

    /// Whether it works on this store, and no other.
    #[cfg(feature = "testing")]
    pub(crate) fn is_for(&self, room: &Postroom) -> bool {
        matches!(&self.place, Place::Room(own) if Arc::ptr_eq(&own.store, &room.store))
    }

    /// An engine for each queue of a store that has handlers.
    pub(crate) fn engines(&self, room: &Postroom) -> Result<Vec<Arc<Engine>>, Error> {
        let settings = Arc::new(self.settings.clone());
        self.queues()
            .map(|(queue, handlers)| Engine::new(room, queue, handlers, &settings))
            .collect()
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = (Queue, &Handlers)> {
        [(Queue::Outbox, &self.outbox), (Queue::Inbox, &self.inbox)]
            .into_iter()
            .filter(|(_, handlers)| !handlers.is_empty())
    }

    fn check(&self) -> Result<(), Error> {
        self.outbox.check()?;
        self.inbox.check()?;
        if self.outbox.is_empty() && self.inbox.is_empty() {
            return Err(ErrorKind::InvalidArgument { param: "handlers" }
                .with("there are none; register one with `on` or `on_inbound`"));
        }
        let settings = &self.settings;
        within("concurrency", settings.concurrency, 10_000)?;
        within("batch", settings.batch, LARGEST_BATCH)?;
        within("chunk", settings.chunk.unwrap_or(1), LARGEST_BATCH)?;
        lease_micros(settings.lease)?;
        if settings.max_deliveries == Some(0) {
            return Err(ErrorKind::OutOfRange {
                param: "max_deliveries",
            }
            .with("expected 1 or more"));
        }
        let positive = [
            ("poll_interval", Some(settings.poll_interval)),
            ("error_delay", Some(settings.error_delay)),
            ("handler_timeout", settings.handler_timeout),
        ];
        for (param, duration) in positive {
            if duration.is_some_and(|duration| duration.is_zero()) {
                return Err(ErrorKind::OutOfRange { param }.with("must be longer than zero"));
            }
        }
        Ok(())
    }
}

fn within(param: &'static str, value: usize, most: usize) -> Result<(), Error> {
    if value == 0 || value > most {
        return Err(
            ErrorKind::OutOfRange { param }.with(format!("expected 1 to {most}, got {value}"))
        );
    }
    Ok(())
}
