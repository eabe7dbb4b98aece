//! How a connection is made, and how many there may be: a fleet gives all its stores one budget.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use deadpool_postgres::{Connect, Pool};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::db::BoxFuture;

/// Connects, within the budget when there is one. The permit lives as long as the connection.
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
                Some(budget) => budget.permit().await,
                None => None,
            };
            let (client, connection) = config.connect(self.tls.clone()).await?;
            let task = tokio::spawn(async move {
                let _permit = permit;
                // Whoever waits for an answer on this connection gets the error; nobody else needs it.
                let _ = connection.await;
            });
            Ok((client, task))
        })
    }
}

/// A number of connections that many stores share. Idle connections of one store are closed when
/// another needs one and none is left.
#[derive(Debug)]
pub(crate) struct Budget {
    permits: Arc<Semaphore>,
    pools: Mutex<Vec<Weak<Pool>>>,
}

/// How long a store waits before it looks again for idle connections of others.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Budget {
    pub(crate) fn new(connections: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(connections)),
            pools: Mutex::default(),
        })
    }

    /// A pool takes part: its idle connections may be closed for others.
    pub(super) fn join(&self, pool: &Arc<Pool>) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                return Some(permit);
            }
            self.close_one_idle();
            let waiting = Arc::clone(&self.permits).acquire_owned();
            if let Ok(permit) = tokio::time::timeout(LOOK_AGAIN, waiting).await {
                return permit.ok();
            }
        }
    }

    /// Closes an idle connection of the store that has the most of them.
    fn close_one_idle(&self) {
        let pools: Vec<Arc<Pool>> = {
            let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            pools.iter().filter_map(Weak::upgrade).collect()
        };
        if let Some(pool) = pools
            .iter()
            .filter(|pool| pool.status().available > 0)
            .max_by_key(|pool| pool.status().available)
        {
            let mut closed = false;
            pool.retain(|_, _| std::mem::replace(&mut closed, true));
        }
    }
}
