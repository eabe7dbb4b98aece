//! The dispatcher of envelopes: publishes what is pending, tries again what fails, gives up what keeps
//! failing. Beneath, it is the [`Dispatcher`] with one handler for every topic.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::outbox::{TransportMessage, TransportOutbox};
use super::publisher::Publisher;
use crate::dispatch::{
    Delivered, Delivery, Dispatcher, Handler, HandlerError, HoneyDrunk, Outcome, Report, Running,
};
use crate::error::{Error, ErrorKind};
use crate::store::{LARGEST_BATCH, duration_micros};

/// Publishes the messages of an outbox, oldest first and one after the other, until it is stopped or by
/// hand.
///
/// A message whose publishing fails is tried again after base · 2^attempts, at most the longest delay, by
/// the database's clock. After `max_retry_attempts` retries it is poisoned, and its error says so:
/// `Exceeded maximum retry attempts (5): ` and the last error behind it. As all stored errors, it begins
/// with `[BUSINESS]` or `[INFRA]`. Only a permanent [`HandlerError`] is not tried again at all.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use postroom::{HandlerError, Message, Postroom};
/// use postroom::transport::{DispatcherOptions, Endpoint, Envelope, OutboxDispatcher, Publisher};
///
/// struct Screen;
///
/// impl Publisher for Screen {
///     async fn publish(&self, envelope: &Envelope, destination: &Endpoint) -> Result<(), HandlerError> {
///         println!("{} to {}", envelope.message_id, destination.name);
///         Ok(())
///     }
/// }
///
/// let room = Postroom::connect("sqlite::memory:").await?;
/// room.deploy().await?;
/// room.outbox().enqueue(&Message::new("orders.created", "{}")).await?;
///
/// let dispatcher = OutboxDispatcher::new(room.transport_outbox(), Screen)
///     .options(DispatcherOptions { max_retry_attempts: 3, ..DispatcherOptions::default() });
/// assert_eq!(dispatcher.dispatch_pending(100).await?.done, 1);
///
/// let running = dispatcher.start()?; // in the background
/// running.stop().await;
/// # Ok::<(), postroom::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a dispatcher does nothing until it is run"]
pub struct OutboxDispatcher<P> {
    outbox: TransportOutbox,
    publisher: Arc<P>,
    options: DispatcherOptions,
    concurrency: usize,
}

/// How an [`OutboxDispatcher`] behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatcherOptions {
    /// The longest pause between two looks at an idle outbox: 5 seconds. An enqueue wakes it sooner.
    pub poll_interval: Duration,
    /// How many messages one claim takes at most: 100.
    pub batch_size: usize,
    /// Retries after the first try: 5. With 0, the first failure is the last.
    pub max_retry_attempts: u32,
    /// The delay of the first retry: 1 second. Each further one is twice as long.
    pub base_retry_delay: Duration,
    /// No delay is longer: 5 minutes.
    pub max_retry_delay: Duration,
    /// How long to wait before the first look: not at all.
    pub startup_delay: Duration,
    /// The longest pause after the database has failed: 30 seconds. The first is a tenth of a second, and
    /// each further one is twice as long.
    pub error_delay: Duration,
}

impl Default for DispatcherOptions {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(5),
            batch_size: 100,
            max_retry_attempts: 5,
            base_retry_delay: Duration::from_secs(1),
            max_retry_delay: Duration::from_secs(300),
            startup_delay: Duration::ZERO,
            error_delay: Duration::from_secs(30),
        }
    }
}

impl<P: Publisher> OutboxDispatcher<P> {
    /// A dispatcher with default options.
    pub fn new(outbox: TransportOutbox, publisher: P) -> Self {
        Self {
            outbox,
            publisher: Arc::new(publisher),
            options: DispatcherOptions::default(),
            concurrency: 1,
        }
    }

    /// How it behaves.
    pub fn options(mut self, options: DispatcherOptions) -> Self {
        self.options = options;
        self
    }

    /// How many envelopes may be published at once, 1 by default: then they go out in the order of their
    /// claim.
    pub fn concurrency(mut self, envelopes: usize) -> Self {
        self.concurrency = envelopes;
        self
    }

    /// Publishes up to `batch` pending messages now, and says what became of them. One that fails does
    /// not stop the rest.
    ///
    /// # Errors
    /// When `batch` or an option is out of range, and when the database fails.
    pub async fn dispatch_pending(&self, batch: usize) -> Result<Report, Error> {
        self.dispatcher()?.batch(batch).run_once().await
    }

    /// Runs until `stop` comes back, then stops as [`Running::stop`] does.
    ///
    /// # Errors
    /// When an option is out of range. Failures of the database are no errors here: they are logged, and
    /// the dispatcher goes on when it is back.
    pub async fn run_until(&self, stop: impl Future<Output = ()>) -> Result<Report, Error> {
        self.dispatcher()?.run_until(stop).await
    }

    /// Starts it in the background.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn start(&self) -> Result<Running, Error> {
        self.dispatcher()?.start()
    }

    fn dispatcher(&self) -> Result<Dispatcher, Error> {
        let options = &self.options;
        options.check()?;
        let dispatcher = self
            .outbox
            .room()
            .dispatcher()
            .otherwise(Publish(Arc::clone(&self.publisher)))
            .retry(HoneyDrunk {
                max_retry_attempts: options.max_retry_attempts,
                base_retry_delay: options.base_retry_delay,
                max_retry_delay: options.max_retry_delay,
            })
            .concurrency(self.concurrency)
            .batch(options.batch_size)
            .lease(self.outbox.lease_time())
            .poll_interval(options.poll_interval)
            .startup_delay(options.startup_delay)
            .error_delay(options.error_delay);
        Ok(dispatcher)
    }
}

impl DispatcherOptions {
    fn check(&self) -> Result<(), Error> {
        let out_of_range = |param, expected: String| {
            Err(ErrorKind::OutOfRange { param }.with(format!("expected {expected}")))
        };
        if !(1..=LARGEST_BATCH).contains(&self.batch_size) {
            return out_of_range("batch_size", format!("1 to {LARGEST_BATCH}"));
        }
        let durations = [
            ("poll_interval", self.poll_interval),
            ("base_retry_delay", self.base_retry_delay),
            ("max_retry_delay", self.max_retry_delay),
            ("error_delay", self.error_delay),
        ];
        for (param, duration) in durations {
            duration_micros(param, duration)?;
            if duration.is_zero() {
                return out_of_range(param, "more than nothing".to_owned());
            }
        }
        if self.base_retry_delay > self.max_retry_delay {
            return out_of_range("base_retry_delay", "at most `max_retry_delay`".to_owned());
        }
        duration_micros("startup_delay", self.startup_delay).map(drop)
    }
}

/// Hands a message to the publisher as the envelope that it is.
struct Publish<P>(Arc<P>);

impl<P: Publisher> Handler for Publish<P> {
    async fn handle(&self, delivery: Delivery) -> Result<Outcome, HandlerError> {
        let Delivered::Outbox(message) = delivery.message() else {
            return Err(HandlerError::permanent("only an outbox has envelopes"));
        };
        let message = TransportMessage::from_outbox(message.clone(), None);
        self.0
            .publish(&message.envelope, &message.destination)
            .await?;
        Ok(Outcome::Done)
    }
}
