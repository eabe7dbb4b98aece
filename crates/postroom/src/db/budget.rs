//! How many connections there may be: a fleet gives all its stores one budget, whatever their databases.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use deadpool::managed::{Manager, Object, Pool};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of connections that many stores share. Idle connections of one store are closed when
/// another needs one and none is left.
///
/// Nobody may wait for a connection while holding another, or all might wait for each other. Handlers do:
/// in their transaction they may use the store beside it. So transactions take half of the budget at most.
pub(crate) struct Budget {
    connections: usize,
    permits: Arc<Semaphore>,
    transactions: Arc<Semaphore>,
    pools: Mutex<Vec<Weak<dyn Idle>>>,
    /// What this is a share of.
    whole: Option<Arc<Budget>>,
}

/// The right to a connection: the store's own, and the fleet's. It is given back when the server has had a
/// moment to see the connection go.
pub(crate) struct Permit {
    _own: Option<OwnedSemaphorePermit>,
    _whole: Option<OwnedSemaphorePermit>,
}

/// The smallest share of a store: a handler's transaction, and whatever runs beside it.
const SMALLEST_SHARE: usize = 2;

/// How long one waits before looking again for idle connections of others.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How long a server may need to end a session after its client has left.
pub(crate) const FAREWELL: Duration = Duration::from_millis(10);

/// The right to a connection, where they are counted.
pub(super) async fn permit(budget: Option<&Arc<Budget>>) -> Option<Permit> {
    Some(budget?.permit().await)
}

/// A place among the transactions that may be open at once, where they are counted.
pub(super) async fn transaction(budget: Option<&Arc<Budget>>) -> Option<OwnedSemaphorePermit> {
    budget?.transaction().await
}

impl Budget {
    pub(crate) fn new(connections: usize) -> Arc<Self> {
        Self::part(connections, None)
    }

    /// The share of one store: half of the whole at most, so that one whose database hangs cannot keep all
    /// connections from the others.
    pub(crate) fn share(self: &Arc<Self>) -> Arc<Self> {
        let connections = (self.connections / 2).max(SMALLEST_SHARE);
        Self::part(connections, Some(Arc::clone(self)))
    }

    fn part(connections: usize, whole: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            connections,
            permits: Arc::new(Semaphore::new(connections)),
            transactions: Arc::new(Semaphore::new((connections / 2).max(1))),
            pools: Mutex::default(),
            whole,
        })
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections
    }

    /// A pool takes part: its idle connections may be closed for others.
    pub(super) fn join(&self, pool: &Arc<dyn Idle>) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
        drop(pools);
        if let Some(whole) = &self.whole {
            whole.join(pool);
        }
    }

    /// A place among the transactions of the whole fleet.
    async fn transaction(&self) -> Option<OwnedSemaphorePermit> {
        let whole = self.whole.as_deref().unwrap_or(self);
        Arc::clone(&whole.transactions).acquire_owned().await.ok()
    }

    /// Always the store's own before the fleet's: an order in which nobody waits in a circle.
    async fn permit(&self) -> Permit {
        let own = self.one().await;
        let whole = match &self.whole {
            Some(whole) => whole.one().await,
            None => None,
        };
        Permit {
            _own: own,
            _whole: whole,
        }
    }

    /// First come, first served. An idle connection is closed now and then until it is our turn.
    async fn one(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Some(permit);
        }
        let mut waiting = std::pin::pin!(Arc::clone(&self.permits).acquire_owned());
        loop {
            self.close_one_idle();
            if let Ok(permit) = tokio::time::timeout(LOOK_AGAIN, &mut waiting).await {
                return permit.ok();
            }
        }
    }

    /// Closes the connection that was not used for the longest time.
    fn close_one_idle(&self) {
        let pools: Vec<Arc<dyn Idle>> = {
            let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            pools.iter().filter_map(Weak::upgrade).collect()
        };
        let oldest = pools
            .iter()
            .filter_map(|pool| Some((pool.longest_idle()?, pool)))
            .max_by_key(|(idle, _)| *idle);
        if let Some((idle, pool)) = oldest {
            pool.close_one(idle);
        }
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

/// A pool as the budget sees it: connections that nobody uses.
pub(crate) trait Idle: Send + Sync {
    /// For how long the one that was used least recently has been idle.
    fn longest_idle(&self) -> Option<Duration>;

    /// Closes one that has been idle for so long.
    fn close_one(&self, idle: Duration);
}

impl<M: Manager + 'static> Idle for Pool<M, Object<M>> {
    fn longest_idle(&self) -> Option<Duration> {
        let mut longest = None;
        self.retain(|_, metrics| {
            longest = longest.max(Some(metrics.last_used()));
            true
        });
        longest
    }

    fn close_one(&self, idle: Duration) {
        let mut closed = false;
        self.retain(|_, metrics| {
            closed || metrics.last_used() < idle || std::mem::replace(&mut closed, true)
        });
    }
}
