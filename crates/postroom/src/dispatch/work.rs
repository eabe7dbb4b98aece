//! One message: find its handler, run it, decide what becomes of it.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use metrics::counter;
use tracing::Instrument;
use tracing::field::{Empty, display};

use super::delivery::Delivery;
use super::dispatcher::NoHandler;
use super::engine::{Engine, Handled, Unsettled, Work};
use super::outcome::{FailureClass, HandlerError, Outcome};
use super::redact::without_payload;
use super::retry::{Failure, Verdict};
use super::transaction::{Open, Slot};
use super::turn::Settlement;
use crate::error::{Error, ErrorKind};
use crate::message::Message;
use crate::observe::{Origin, TraceContext, trace};
use crate::outbox::{Enqueue, ack_and_enqueue, log_enqueued};
use crate::sql::{Dialect, Queue, Statement};
use crate::store::duration_micros;

/// How a handler's run ended.
enum Ended {
    Answered(Result<Outcome, HandlerError>),
    Panicked(String),
    /// The lease was lost, or the dispatcher stops.
    Cancelled,
}

/// What is still to be written; `None` when all is written, or when nothing may be.
type Next = Option<Unsettled>;

/// How long a message waits that nobody handles.
const NO_HANDLER_DELAY: Duration = Duration::from_secs(60);

/// Deliveries without an outcome that are worth a warning.
const SUSPICIOUS_DELIVERIES: u32 = 4;

impl Engine {
    /// Handles one message.
    pub(super) async fn work(self: &Arc<Self>, work: Work) {
        let delivery = work.delivery.clone();
        let started = Instant::now();
        let handling = AssertUnwindSafe(self.handle(&work, started)).catch_unwind();
        let next = match handling.await {
            Ok(next) => next,
            // Not the handler but what belongs to it: the retry policy, or a drop.
            Err(panic) => self.panicked(&delivery, panic.as_ref()),
        };
        self.end_transaction(&delivery).await;
        self.finished(&work, started, next);
    }

    /// The handler's span. On the first attempt it is a child of what the producer did; a retry is a trace
    /// of its own that points there.
    fn span(&self, delivery: &Delivery) -> (tracing::Span, Option<TraceContext>) {
        let span = tracing::info_span!(
            parent: None,
            "handle",
            store = %self.room.identifier(),
            queue = self.queue.name(),
            topic = delivery.topic(),
            message_id = %delivery.key(),
            attempt = delivery.attempt(),
            trace_id = Empty,
            parent_span_id = Empty,
            linked_to = Empty,
        );
        let first = delivery.progress().attempt_count == 0;
        let Some(origin) = trace::origin(delivery.headers(), first) else {
            return (span, None);
        };
        let context = trace::handling(origin);
        span.record("trace_id", display(Hex(&context.trace_id())));
        match origin {
            Origin::ChildOf(parent) => {
                span.record("parent_span_id", display(Hex(&parent.span_id())))
            }
            Origin::LinkedTo(linked) => span.record("linked_to", display(linked)),
        };
        if let Some(propagator) = &self.room.store.propagator {
            propagator.adopt(&span, origin);
        }
        (span, Some(context))
    }

    async fn handle(&self, work: &Work, started: Instant) -> Next {
        let delivery = &work.delivery;
        if let Some(next) = self.too_many_deliveries(delivery) {
            return next;
        }
        let Some(handler) = self.handlers.find(delivery.topic()) else {
            return self.no_handler(delivery);
        };
        let (span, context) = self.span(delivery);
        span.in_scope(|| {
            let store = &self.room.store;
            store.log_handling(self.queue.name(), delivery.topic(), &delivery.key());
        });
        let running = async { handler.handle(delivery.clone()).await };
        let running = AssertUnwindSafe(trace::scope(context, running).instrument(span.clone()));
        let running = self.in_time(running.catch_unwind());
        let ended = if delivery.is_cancelled() {
            Ended::Cancelled
        } else {
            tokio::select! {
                biased;
                ended = running => ended,
                () = delivery.cancelled() => Ended::Cancelled,
                ended = self.held_the_writer(delivery) => ended,
            }
        };
        handler.record(started.elapsed());
        // What follows from the message belongs to its trace as well.
        let settling = trace::scope(context, self.settle(work, ended));
        let next = settling.instrument(span).await;
        // What was acked in the handler's own transaction may be settled, whatever the handler answered.
        next.map(|next| next.uncertain_if(delivery.acked_elsewhere()))
    }

    /// SQLite has one writer: a transaction that holds it for half a lease keeps everybody's leases from
    /// being renewed. Comes back when this handler's does.
    async fn held_the_writer(&self, delivery: &Delivery) -> Ended {
        if self.room.dialect() != Dialect::Sqlite {
            return std::future::pending().await;
        }
        let limit = self.settings.lease / 2;
        loop {
            let left = delivery
                .transaction_age()
                .map_or(limit, |age| limit.saturating_sub(age));
            if left.is_zero() {
                return Ended::Answered(Err(HandlerError::business(format!(
                    "the handler's transaction has held SQLite's only writer for {limit:?}; begin it later"
                ))));
            }
            tokio::time::sleep(left).await;
        }
    }

    /// The run, no longer than the settings allow.
    async fn in_time(
        &self,
        running: impl Future<Output = std::thread::Result<Result<Outcome, HandlerError>>>,
    ) -> Ended {
        let answer = match self.settings.handler_timeout {
            None => running.await,
            Some(limit) => tokio::time::timeout(limit, running)
                .await
                .unwrap_or_else(|_| {
                    Ok(Err(HandlerError::infrastructure(format!(
                        "the handler took longer than {} s",
                        limit.as_secs_f64()
                    ))))
                }),
        };
        match answer {
            Ok(answer) => Ended::Answered(answer),
            Err(panic) => Ended::Panicked(panic_text(panic.as_ref())),
        }
    }

    fn count_panic(&self) {
        self.tally.panics.fetch_add(1, Ordering::Relaxed);
        counter!("postroom_handler_panics_total", "store" => self.room.store.identifier.clone(), "queue" => self.queue.name())
            .increment(1);
    }

    /// Nobody is left who could decide: the message is tried again after the default backoff.
    fn panicked(&self, delivery: &Delivery, panic: &(dyn Any + Send)) -> Next {
        self.count_panic();
        let text = self.log_failed(delivery, &panic_text(panic));
        let settlement = Settlement::Abandon {
            delay: None,
            error: Some(retry_text(delivery, FailureClass::Business, &text)),
            deferred: false,
        };
        Some(Unsettled::new(settlement, Handled::Retried))
    }

    async fn settle(&self, work: &Work, ended: Ended) -> Next {
        let delivery = &work.delivery;
        match ended {
            Ended::Cancelled if work.lease.is_held() => {
                Some(Unsettled::new(Settlement::Release, Handled::Released))
            }
            Ended::Cancelled => {
                self.lost(false);
                None
            }
            Ended::Panicked(text) => {
                self.count_panic();
                self.failed(delivery, HandlerError::business(text))
            }
            Ended::Answered(Err(error)) => self.failed(delivery, error),
            Ended::Answered(Ok(Outcome::Done)) => self.done(work, &[]).await,
            Ended::Answered(Ok(Outcome::DoneAndEnqueue(messages))) => {
                self.done(work, &messages).await
            }
            Ended::Answered(Ok(Outcome::Retry(after))) => {
                let mut error = HandlerError::business("the handler asked for another attempt");
                error.retry_after = after;
                self.retry_or_fail(delivery, &error)
            }
            Ended::Answered(Ok(Outcome::NotReady(after))) => {
                tracing::debug!(store = %self.room.identifier(), queue = self.queue.name(), topic = delivery.topic(), message_id = %delivery.key(), "not ready");
                let settlement = Settlement::Abandon {
                    delay: self.delay(after),
                    error: None,
                    deferred: true,
                };
                Some(Unsettled::new(settlement, Handled::NotReady))
            }
        }
    }

    /// The handler has succeeded: acked with all the others in the next turn, unless something has to be
    /// committed together with it.
    async fn done(&self, work: &Work, messages: &[Message]) -> Next {
        let delivery = &work.delivery;
        if delivery.acked_elsewhere() {
            return self.acked_by_handler(work, messages).await;
        }
        let written = match self.open_transaction(delivery) {
            Ok(Some(open)) => {
                work.lease.settling();
                self.commit(delivery, open, messages).await
            }
            Ok(None) if messages.is_empty() => {
                return Some(Unsettled::new(Settlement::Ack, Handled::Done));
            }
            Ok(None) => {
                work.lease.settling();
                let (store, owner) = (&self.room.store, delivery.owner());
                ack_and_enqueue(store, self.queue, owner, delivery.work_item_id(), messages)
                    .await
                    .map(drop)
            }
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => {
                work.lease.closed(true);
                self.count(Handled::Done, 1);
                None
            }
            Err(error) if error.kind() == ErrorKind::LeaseLost => {
                let news = work.lease.closed(false);
                if news {
                    tracing::warn!(store = %self.room.identifier(), queue = self.queue.name(), topic = delivery.topic(), message_id = %delivery.key(), "lease lost; what the handler did in its transaction is rolled back");
                }
                self.lost(news);
                None
            }
            Err(error) => self.not_committed(work, error),
        }
    }

    /// What the handler did could not be committed, as far as one can know.
    fn not_committed(&self, work: &Work, error: Error) -> Next {
        work.lease.held();
        // A connection that broke during the commit does not tell whether it was one.
        let uncertain = error.is_transient();
        let next = self.failed(&work.delivery, error.into());
        next.map(|next| next.uncertain_if(uncertain))
    }

    /// The ack went with the handler's own transaction. What it lets follow did not, which is its choice.
    /// Or it went with the transaction that the handler was given, which is still to be committed.
    async fn acked_by_handler(&self, work: &Work, messages: &[Message]) -> Next {
        let delivery = &work.delivery;
        let committed = match self.open_transaction(delivery) {
            Ok(None) => Ok(false),
            Ok(Some(open)) => self.commit_acked(open, messages).await.map(|()| true),
            Err(error) => Err(error),
        };
        let committed = match committed {
            Ok(committed) => committed,
            Err(error) => return self.not_committed(work, error),
        };
        work.lease.closed(true);
        self.count(Handled::Done, 1);
        if committed {
            return None;
        }
        if let Err(error) = self.room.outbox().enqueue_many(messages).await {
            tracing::error!(store = %self.room.identifier(), topic = delivery.topic(), message_id = %delivery.key(), %error, "what follows from an acked message could not be enqueued; enqueue it in the handler's transaction");
        }
        None
    }

    /// The handler's transaction, taken from it.
    fn open_transaction(&self, delivery: &Delivery) -> Result<Option<Open>, Error> {
        let Ok(mut slot) = delivery.inner.transaction.try_lock() else {
            return Err(ErrorKind::Database.with(
                "the handler has ended while its transaction was in use; await every use of it",
            ));
        };
        match std::mem::replace(&mut *slot, Slot::Over) {
            Slot::Open(open) => Ok(Some(open)),
            Slot::NotBegun | Slot::Over => Ok(None),
        }
    }

    /// Acks, enqueues and commits what the handler did, or rolls all of it back.
    async fn commit(
        &self,
        delivery: &Delivery,
        mut open: Open,
        messages: &[Message],
    ) -> Result<(), Error> {
        let store = &self.room.store;
        messages.iter().try_for_each(Message::check)?;
        let (owner, id) = (delivery.owner(), delivery.work_item_id());
        let enqueue = Enqueue::after_ack(store, self.queue, owner, id, messages);
        let acked = open
            .transaction
            .run(enqueue.calls)
            .await
            .and_then(|output| store.settled(output.rows));
        match acked {
            Ok(acked) if !acked.is_empty() => {
                open.transaction.commit().await?;
                store.log_settled("ack", self.queue.name(), acked.len());
                // Whatever the handler has enqueued can be seen now.
                store.added(Queue::Outbox);
                log_enqueued(store, messages);
                Ok(())
            }
            Ok(_) => {
                open.transaction.rollback().await;
                Err(ErrorKind::LeaseLost.with("nothing was written"))
            }
            Err(error) => {
                open.transaction.rollback().await;
                Err(error)
            }
        }
    }

    /// Commits what the handler did where its ack is part of that.
    async fn commit_acked(&self, mut open: Open, messages: &[Message]) -> Result<(), Error> {
        let store = &self.room.store;
        // PostgreSQL answers a COMMIT after an error with a rollback, and no error: this finds out.
        let alive = Statement {
            sql: "SELECT 1".into(),
            values: Vec::new(),
        };
        open.transaction.execute(alive).await?;
        if !messages.is_empty() {
            let enqueue = Enqueue::many(store, messages)?;
            open.transaction.run(enqueue.calls).await?;
        }
        open.transaction.commit().await?;
        store.added(Queue::Outbox);
        log_enqueued(store, messages);
        Ok(())
    }

    /// Whatever is left of a transaction is rolled back: at once, or when whatever still uses it is done.
    async fn end_transaction(&self, delivery: &Delivery) {
        match self.open_transaction(delivery) {
            Ok(Some(open)) => open.transaction.rollback().await,
            Ok(None) => {}
            Err(_) => {
                let delivery = delivery.clone();
                tokio::spawn(async move {
                    let slot = &mut *delivery.inner.transaction.lock().await;
                    if let Slot::Open(open) = std::mem::replace(slot, Slot::Over) {
                        open.transaction.rollback().await;
                    }
                });
            }
        }
    }

    fn failed(&self, delivery: &Delivery, mut error: HandlerError) -> Next {
        error.text = self.log_failed(delivery, &error.text);
        self.retry_or_fail(delivery, &error)
    }

    /// Logs an error, and gives back what of it may be stored.
    fn log_failed(&self, delivery: &Delivery, error: &str) -> String {
        let error = without_payload(error, delivery.payload());
        let (queue, topic) = (self.queue.name(), delivery.topic());
        let store = &self.room.store;
        store.log_failed(queue, topic, &delivery.key(), &error);
        error
    }

    /// The policy's verdict. Failures of infrastructure use up time and no attempts.
    fn retry_or_fail(&self, delivery: &Delivery, error: &HandlerError) -> Next {
        let retry_count = delivery.progress().attempt_count;
        let verdict = self.settings.retry.decide(&Failure {
            class: error.class,
            attempts: delivery.attempt(),
            retry_count,
            age: delivery.age(),
            topic: delivery.topic(),
        });
        let (mark, text) = (error.class.mark(), &error.text);
        let (settlement, handled) = match verdict {
            Verdict::Retry(delay) => {
                counter!("postroom_retries_total", "store" => self.room.store.identifier.clone(), "queue" => self.queue.name(), "class" => error.class.name())
                    .increment(1);
                let settlement = Settlement::Abandon {
                    delay: self.delay(error.retry_after.or(delay)),
                    error: Some(retry_text(delivery, error.class, text)),
                    deferred: error.class == FailureClass::Infrastructure
                        && !self.settings.retry.counts_infrastructure(),
                };
                (settlement, Handled::Retried)
            }
            Verdict::Fail(reason) => {
                let reason = if reason.is_empty() {
                    format!("{mark} {text}")
                } else {
                    format!("{mark} {reason}: {text}")
                };
                (Settlement::Fail { error: reason }, Handled::Dead)
            }
        };
        Some(Unsettled::new(settlement, handled))
    }

    fn no_handler(&self, delivery: &Delivery) -> Next {
        let policy = self.settings.no_handler;
        tracing::warn!(store = %self.room.identifier(), queue = self.queue.name(), topic = delivery.topic(), message_id = %delivery.key(), ?policy, "no handler for the topic");
        let error = format!("no handler for the topic `{}`", delivery.topic());
        let (settlement, handled) = match policy {
            NoHandler::Abandon => {
                let settlement = Settlement::Abandon {
                    delay: self.delay(Some(NO_HANDLER_DELAY)),
                    error: Some(error),
                    deferred: true,
                };
                (settlement, Handled::Unhandled)
            }
            NoHandler::Fail => (Settlement::Fail { error }, Handled::Dead),
            NoHandler::Ack => (Settlement::Ack, Handled::Done),
        };
        Some(Unsettled::new(settlement, handled))
    }

    /// A message that was claimed again and again and never settled may be what kills its workers.
    fn too_many_deliveries(&self, delivery: &Delivery) -> Option<Next> {
        let unsettled = delivery.without_outcome();
        if unsettled >= SUSPICIOUS_DELIVERIES {
            tracing::warn!(store = %self.room.identifier(), queue = self.queue.name(), topic = delivery.topic(), message_id = %delivery.key(), deliveries = unsettled, "delivered again and again without an outcome; its handler may kill the process");
        }
        let most = self.settings.max_deliveries?;
        (unsettled > most).then(|| {
            let error = format!(
                "[BUSINESS] Delivered {most} times without an outcome; its handler may kill the process"
            );
            self.log_failed(delivery, &error);
            Some(Unsettled::new(Settlement::Fail { error }, Handled::Dead))
        })
    }

    /// Microseconds that the store accepts: never nothing, never more than a year.
    fn delay(&self, delay: Option<Duration>) -> Option<i64> {
        delay.map(|delay| {
            duration_micros("delay", delay)
                .unwrap_or(366 * 24 * 3600 * 1_000_000)
                .max(1)
        })
    }
}

/// What is stored with a message that is tried again.
fn retry_text(delivery: &Delivery, class: FailureClass, text: &str) -> String {
    let retry = delivery.progress().attempt_count + 1;
    format!("{} Retry {retry}: {text}", class.mark())
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or_default();
    format!("the handler panicked: {text}")
}

/// Bytes as lower-case hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
