//! The small pool that the connections to a server are in.

use std::sync::Arc;
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{HookError, Manager, Pool, PoolBuilder, PoolError, QueueMode};

use crate::db::{Budget, Idle};
use crate::error::{Error, ErrorKind};

/// A pool of so many connections at most. It takes part in the budget when there is one.
pub(super) fn small_pool<M: Manager + 'static>(
    builder: PoolBuilder<M>,
    connections: usize,
    budget: Option<&Arc<Budget>>,
) -> Result<Arc<Pool<M>>, Error> {
    let pool = builder
        // The connection that was used last has its statements ready and its caches warm.
        .queue_mode(QueueMode::Lifo)
        .max_size(connections)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(Duration::from_secs(30)))
        .create_timeout(Some(Duration::from_secs(15)))
        .recycle_timeout(Some(Duration::from_secs(15)))
        .build()
        .map_err(|_| ErrorKind::Database.with("the connection pool could not be built"))?;
    let pool = Arc::new(pool);
    if let Some(budget) = budget {
        budget.join(&(Arc::clone(&pool) as Arc<dyn Idle>));
    }
    Ok(pool)
}

/// Why a pool has given no connection; `cannot_connect` says what the client's error means.
pub(super) fn no_connection<E>(
    error: PoolError<E>,
    cannot_connect: impl FnOnce(&E) -> Error,
) -> Error {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            cannot_connect(&error)
        }
        PoolError::Timeout(_) => ErrorKind::Transient
            .with("no connection became free in time; raise `connections` or look for slow calls"),
        _ => ErrorKind::Transient.with("the connection pool is closed"),
    }
}
