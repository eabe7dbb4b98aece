//! How a connection is made, and how many there may be: a fleet gives all its stores one budget.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use deadpool_postgres::{Connect, Pool};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::db::BoxFuture;

/// Connects, within the budget when there is one.
pub(super) struct Connector {
    pub(super) tls: MakeRustlsConnect,
    pub(super) budget: Option<Arc<Budget>>,
}

impl Connect for Connector {
    fn connect(
        &self,
        config: &Config,
    ) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), tokio_postgres::Error>> {
        let config = config.clone();
        Box::pin(async move {
            let permit = match &self.budget {
                Some(budget) => Some(budget.permit().await),
                None => None,
            };
            let (client, connection) = config.connect(self.tls.clone()).await?;
            let Some(permit) = permit else {
                return Ok((
                    client,
                    tokio::spawn(async move {
                        // Whoever waits for an answer on this connection gets the error; nobody else
                        // needs it.
                        let _ = connection.await;
                    }),
                ));
            };
            // The pool aborts its task when it drops the client. This one goes on until the server was
            // told goodbye and had a moment to leave: only then is the connection really gone.
            let driving = tokio::spawn(async move {
                let _ = connection.await;
                tokio::time::sleep(FAREWELL).await;
                drop(permit);
            });
            let task = tokio::spawn(async move {
                let _ = driving.await;
            });
            Ok((client, task))
        })
    }
}

/// A number of connections that many stores share. Idle connections of one store are closed when
/// another needs one and none is left.
///
/// Nobody may wait for a connection while holding another, or all might wait for each other. Handlers do:
/// in their transaction they may use the store beside it. So transactions take half of the budget at most.
#[derive(Debug)]
pub(crate) struct Budget {
    connections: usize,
    permits: Arc<Semaphore>,
    transactions: Arc<Semaphore>,
    pools: Mutex<Vec<Weak<Pool>>>,
    /// What this is a share of.
    whole: Option<Arc<Budget>>,
}

/// The right to a connection: the store's own, and the fleet's.
struct Permit {
    _own: Option<OwnedSemaphorePermit>,
    _whole: Option<OwnedSemaphorePermit>,
}

/// The smallest share of a store: a handler's transaction, and whatever runs beside it.
const SMALLEST_SHARE: usize = 2;

/// How long one waits before looking again for idle connections of others.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How long a server may need to end a session after its client has left.
const FAREWELL: Duration = Duration::from_millis(10);

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
    pub(super) fn join(&self, pool: &Arc<Pool>) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
        drop(pools);
        if let Some(whole) = &self.whole {
            whole.join(pool);
        }
    }

    /// A place among the transactions that may be open at once in the whole fleet.
    pub(super) async fn transaction(&self) -> Option<OwnedSemaphorePermit> {
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
        let pools: Vec<Arc<Pool>> = {
            let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            pools.iter().filter_map(Weak::upgrade).collect()
        };
        let longest_idle = |pool: &Pool| {
            let mut longest = None;
            pool.retain(|_, metrics| {
                longest = longest.max(Some(metrics.last_used()));
                true
            });
            longest
        };
        let oldest = pools
            .iter()
            .filter_map(|pool| Some((longest_idle(pool)?, pool)))
            .max_by_key(|(idle, _)| *idle);
        if let Some((idle, pool)) = oldest {
            let mut closed = false;
            pool.retain(|_, metrics| {
                closed || metrics.last_used() < idle || std::mem::replace(&mut closed, true)
            });
        }
    }
}
