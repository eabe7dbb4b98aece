//! Enqueueing together: messages that come in while others are being written wait for the next
//! transaction, and share it. Whoever comes alone does not wait. So sixty-four connections cost the
//! database a few statements with many messages each, and not sixty-four.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use postroom::{Error, Message, Outbox, Postroom, Receipt};
use tokio::sync::oneshot;

use crate::http::Problem;

/// Transactions that may be under way at once in a store: one is parsed and answered while the other is
/// written. More would make each smaller, and take connections from dispatch.
const WRITERS: usize = 2;

/// What waits in every store, by its identifier.
#[derive(Default)]
pub(crate) struct Gather {
    stores: Mutex<HashMap<String, Arc<Lane>>>,
}

/// What waits in one store.
#[derive(Default)]
struct Lane {
    state: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    messages: Vec<Message>,
    callers: Vec<Caller>,
    writers: usize,
    /// Messages that are being written.
    under_way: usize,
}

impl Waiting {
    /// The first writer starts at once. Another one only when it is worth a transaction: when as many
    /// messages wait as are being written.
    fn needs_writer(&self) -> bool {
        self.writers == 0 || (self.writers < WRITERS && self.messages.len() >= self.under_way)
    }
}

/// Who waits for a receipt.
type Caller = oneshot::Sender<Result<Receipt, Error>>;

impl Gather {
    /// Enqueues a message that no other can spoil: one that names no join. When this returns, it is
    /// committed.
    pub(super) async fn enqueue(
        &self,
        room: &Postroom,
        message: Message,
    ) -> Result<Receipt, Problem> {
        let lane = self.lane(room.identifier());
        let (caller, receipt) = oneshot::channel();
        let starts = {
            let mut waiting = lane.lock();
            waiting.messages.push(message);
            waiting.callers.push(caller);
            let starts = waiting.needs_writer();
            waiting.writers += usize::from(starts);
            starts
        };
        if starts {
            // A task of its own: it goes on when the caller that started it goes away.
            let writer = Writer {
                lane,
                at_work: true,
                under_way: 0,
            };
            tokio::spawn(writer.run(room.outbox()));
        }
        match receipt.await {
            Ok(receipt) => Ok(receipt?),
            Err(_) => Err(Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the write broke off: nobody knows whether it was committed",
            )),
        }
    }

    fn lane(&self, identifier: &str) -> Arc<Lane> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        match stores.get(identifier) {
            Some(lane) => Arc::clone(lane),
            None => Arc::clone(stores.entry(identifier.to_owned()).or_default()),
        }
    }
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes what waits, again and again, until nothing does.
struct Writer {
    lane: Arc<Lane>,
    at_work: bool,
    /// Messages of the batch that it is writing.
    under_way: usize,
}

impl Writer {
    async fn run(mut self, outbox: Outbox) {
        loop {
            // Whoever has a request that is read already comes along.
            tokio::task::yield_now().await;
            let Some((messages, callers)) = self.next() else {
                return;
            };
            match outbox.enqueue_many(&messages).await {
                Ok(receipts) => {
                    for (caller, receipt) in callers.into_iter().zip(receipts) {
                        let _ = caller.send(Ok(receipt));
                    }
                }
                // Nobody knows whether it was committed: whether to try again is the caller's choice.
                Err(error) if error.is_transient() => {
                    for caller in callers {
                        let _ = caller.send(Err(error.clone()));
                    }
                }
                // Nothing was written, perhaps because of one of them: each for itself.
                Err(_) => {
                    for (message, caller) in messages.iter().zip(callers) {
                        let _ = caller.send(outbox.enqueue(message).await);
                    }
                }
            }
        }
    }

    /// What waits. With nothing left this writer ends, before anybody else can add something.
    fn next(&mut self) -> Option<(Vec<Message>, Vec<Caller>)> {
        let mut waiting = self.lane.lock();
        waiting.under_way -= mem::replace(&mut self.under_way, waiting.messages.len());
        waiting.under_way += self.under_way;
        if waiting.messages.is_empty() {
            waiting.writers -= 1;
            self.at_work = false;
            return None;
        }
        Some((
            mem::take(&mut waiting.messages),
            mem::take(&mut waiting.callers),
        ))
    }
}

/// A writer that breaks down leaves its place to another.
impl Drop for Writer {
    fn drop(&mut self) {
        if self.at_work {
            let mut waiting = self.lane.lock();
            waiting.writers -= 1;
            waiting.under_way -= self.under_way;
        }
    }
}
