//! Leases renew by themselves, at a third of their length, on a thread of their own and, on PostgreSQL, a
//! connection of their own: a busy pool, a handler that blocks its thread or a runtime with nothing free
//! cannot hold that up.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use metrics::counter;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use uuid::Uuid;

use super::run::AbortOnDrop;
use crate::db::Database;
use crate::error::{Error, ErrorKind};
use crate::id::OwnerToken;
use crate::sql::{Queue, Value};
use crate::store::Store;

/// The leases of one queue that this process holds.
pub(super) struct Leases {
    store: Arc<Store>,
    queue: Queue,
    lease: Duration,
    /// A way to the database that nobody else uses.
    db: Box<dyn Database>,
    batches: Mutex<Vec<Arc<Batch>>>,
}

/// What one claim leased.
pub(super) struct Batch {
    owner: OwnerToken,
    times: Mutex<Times>,
    items: Vec<Item>,
    /// Some items are cancelled.
    cancelling: Notify,
    /// How many items are neither settled nor lost.
    open: AtomicUsize,
}

struct Times {
    /// By our clock, and never later than by the database's.
    expires: Instant,
    renew: Instant,
}

struct Item {
    id: Uuid,
    state: AtomicU8,
    /// Its handler should stop.
    cancelled: AtomicBool,
    /// Its row was perhaps written since it was claimed.
    renewed: AtomicBool,
}

/// A handler works on it, or its result waits to be settled.
const HELD: u8 = 0;
/// It is being settled: to renew it now would only get in the way.
const SETTLING: u8 = 1;
/// It is settled.
const SETTLED: u8 = 2;
/// The lease was lost.
const LOST: u8 = 3;

/// One message's lease.
#[derive(Clone)]
pub(super) struct Lease {
    batch: Arc<Batch>,
    index: usize,
}

impl Leases {
    /// Starts to keep leases of this length, until the task is dropped.
    pub(super) fn keep(
        store: Arc<Store>,
        queue: Queue,
        lease: Duration,
    ) -> Result<(Arc<Self>, AbortOnDrop), Error> {
        let leases = Arc::new(Self {
            db: store.db.apart(1)?,
            store,
            queue,
            lease,
            batches: Mutex::default(),
        });
        let keeper = Arc::clone(&leases);
        let task = keeper_thread()?.spawn(async move { keeper.run().await });
        Ok((leases, AbortOnDrop::from(task)))
    }

    /// Takes care of what a claim that began at `began` has leased.
    pub(super) fn add(
        &self,
        owner: OwnerToken,
        ids: impl Iterator<Item = Uuid>,
        began: Instant,
    ) -> Vec<Lease> {
        let items: Vec<Item> = ids
            .map(|id| Item {
                id,
                state: AtomicU8::new(HELD),
                cancelled: AtomicBool::new(false),
                renewed: AtomicBool::new(false),
            })
            .collect();
        let batch = Arc::new(Batch {
            owner,
            times: Mutex::new(Times::from(began, self.lease)),
            open: AtomicUsize::new(items.len()),
            items,
            cancelling: Notify::new(),
        });
        self.batches().push(Arc::clone(&batch));
        (0..batch.items.len())
            .map(|index| Lease {
                batch: Arc::clone(&batch),
                index,
            })
            .collect()
    }

    /// Renews nothing more: whatever is left is free when its lease ends.
    pub(super) fn let_go(&self) {
        self.batches().clear();
    }

    /// Tells handlers to stop, all of them.
    pub(super) fn cancel_all(&self) {
        for batch in self.batches().iter() {
            batch.cancel(batch.items.iter());
        }
    }

    fn batches(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Batch>>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(&self) {
        let tick = (self.lease / 30).clamp(Duration::from_millis(5), Duration::from_secs(1));
        loop {
            tokio::time::sleep(tick).await;
            let now = Instant::now();
            let due: Vec<Arc<Batch>> = {
                let mut batches = self.batches();
                batches.retain(|batch| batch.open.load(Ordering::Acquire) > 0);
                let due = batches.iter().filter(|batch| batch.times().renew <= now);
                due.cloned().collect()
            };
            join_all(due.iter().map(|batch| self.renew(batch))).await;
        }
    }

    async fn renew(&self, batch: &Batch) {
        let began = Instant::now();
        let held: Vec<Uuid> = batch
            .in_state(HELD)
            .inspect(|item| item.renewed.store(true, Ordering::Release))
            .map(|item| item.id)
            .collect();
        let expires = batch.times().expires;
        if held.is_empty() {
            // All of it is being settled; if that fails, the lease still ends when it ends.
            batch.times().renew = began + self.lease / 30;
            return;
        }
        if began >= expires {
            // Somebody else may have the messages by now, whatever the database would say.
            self.lose(batch, |_| true);
            return;
        }
        let (_, sql, _) = self.store.queue(self.queue);
        let lease = i64::try_from(self.lease.as_micros()).unwrap_or(i64::MAX);
        let values = vec![
            batch.owner.as_uuid().into(),
            Value::Uuids(held.clone()),
            lease.into(),
        ];
        let renewal = self.db.run(vec![sql.renew.call(values).quick()]);
        let renewal = self.store.observed("renew", self.queue.name(), renewal);
        let renewed = match tokio::time::timeout(expires - began, renewal).await {
            Ok(Ok(output)) => self.store.settled(output.rows),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ErrorKind::Transient.with("the database took too long")),
        };
        match renewed {
            Ok(renewed) => {
                *batch.times() = Times::from(began, self.lease);
                self.lose(batch, |item| {
                    held.contains(&item.id) && !renewed.contains(&item.id)
                });
            }
            Err(error) => {
                tracing::warn!(store = %self.store.identifier, queue = self.queue.name(), %error, "leases could not be renewed; trying again");
                batch.times().renew = Instant::now() + self.lease / 30;
            }
        }
    }

    /// The lease of what `lost` picks is gone: its handler is cancelled.
    fn lose(&self, batch: &Batch, lost: impl Fn(&Item) -> bool) {
        let lost: Vec<&Item> = batch
            .in_state(HELD)
            .filter(|item| lost(item) && batch.change(item, HELD, LOST))
            .collect();
        for item in &lost {
            tracing::warn!(store = %self.store.identifier, queue = self.queue.name(), work_item_id = %item.id, "lease lost; the handler is cancelled");
        }
        self.count_lost(lost.len() as u64);
        batch.cancel(lost.into_iter());
    }

    pub(super) fn count_lost(&self, count: u64) {
        if count > 0 {
            counter!("postroom_lease_losses_total", "store" => self.store.identifier.clone(), "queue" => self.queue.name())
                .increment(count);
        }
    }
}

impl Times {
    fn from(began: Instant, lease: Duration) -> Self {
        Self {
            expires: began + lease,
            renew: began + lease / 3,
        }
    }
}

impl Batch {
    fn times(&self) -> std::sync::MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_state(&self, state: u8) -> impl Iterator<Item = &Item> {
        self.items
            .iter()
            .filter(move |item| item.state.load(Ordering::Acquire) == state)
    }

    fn cancel<'a>(&self, items: impl Iterator<Item = &'a Item>) {
        for item in items {
            item.cancelled.store(true, Ordering::Release);
        }
        self.cancelling.notify_waiters();
    }

    fn change(&self, item: &Item, from: u8, to: u8) -> bool {
        let changed = item
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if changed && to >= SETTLED {
            self.open.fetch_sub(1, Ordering::AcqRel);
        }
        changed
    }
}

impl Lease {
    fn item(&self) -> &Item {
        &self.batch.items[self.index]
    }

    /// Whether its handler should stop.
    pub(super) fn is_cancelled(&self) -> bool {
        self.item().cancelled.load(Ordering::Acquire)
    }

    /// Comes back when its handler should stop.
    pub(super) async fn cancelled(&self) {
        loop {
            // Made before the look, so that nothing is missed between the two.
            let cancelling = self.batch.cancelling.notified();
            if self.is_cancelled() {
                return;
            }
            cancelling.await;
        }
    }

    /// Whether its row is, as far as we know, as it was claimed.
    pub(super) fn is_as_claimed(&self) -> bool {
        !self.item().renewed.load(Ordering::Acquire)
    }

    /// It is about to be settled. What was lost stays lost.
    pub(super) fn settling(&self) {
        self.batch.change(self.item(), HELD, SETTLING);
    }

    /// The attempt to settle it failed: it is still held.
    pub(super) fn held(&self) {
        self.batch.change(self.item(), SETTLING, HELD);
    }

    /// Whether it is still ours, as far as we know.
    pub(super) fn is_held(&self) -> bool {
        self.item().state.load(Ordering::Acquire) < SETTLED
    }

    /// It is settled, or known to be lost. Says whether that loss is news.
    pub(super) fn closed(&self, settled: bool) -> bool {
        let to = if settled { SETTLED } else { LOST };
        let item = self.item();
        let news = self.batch.change(item, SETTLING, to) || self.batch.change(item, HELD, to);
        news && !settled
    }
}

/// The thread on which leases are renewed, one for the whole process.
fn keeper_thread() -> Result<&'static Handle, Error> {
    static KEEPER: OnceLock<Option<Handle>> = OnceLock::new();
    KEEPER
        .get_or_init(|| {
            let runtime = Builder::new_current_thread().enable_all().build().ok()?;
            let handle = runtime.handle().clone();
            std::thread::Builder::new()
                .name("postroom-leases".to_owned())
                .spawn(move || runtime.block_on(std::future::pending::<()>()))
                .ok()?;
            Some(handle)
        })
        .as_ref()
        .ok_or_else(|| ErrorKind::Database.with("no thread could be started to renew leases"))
}
