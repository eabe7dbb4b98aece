//! Waking a dispatcher that has nothing to do. A wake-up is a hint that saves waiting for the next
//! poll; nothing is lost when it is.

use tokio::sync::watch;

/// Where the dispatchers of one queue sleep.
#[derive(Debug)]
pub(crate) struct Wake(watch::Sender<Reason>);

/// Why somebody was woken, and a number that makes each time a new one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reason {
    times: u64,
    /// The last message was written in a transaction that has yet to commit: worth a look every few
    /// milliseconds for a while.
    pub(crate) promised: bool,
}

impl Default for Wake {
    fn default() -> Self {
        Self(watch::Sender::new(Reason::default()))
    }
}

impl Wake {
    /// There is something to do.
    pub(crate) fn wake(&self) {
        self.rouse(false);
    }

    /// There will be something to do when somebody's transaction commits.
    pub(crate) fn promise(&self) {
        self.rouse(true);
    }

    fn rouse(&self, promised: bool) {
        self.0.send_modify(|reason| {
            reason.times += 1;
            reason.promised = promised;
        });
    }

    /// Somebody who will sleep here.
    pub(crate) fn sleeper(&self) -> Sleeper {
        Sleeper(self.0.subscribe())
    }
}

/// Somebody who sleeps until woken.
#[derive(Debug)]
pub(crate) struct Sleeper(watch::Receiver<Reason>);

impl Sleeper {
    /// Comes back as soon as somebody has called since the last time.
    pub(crate) async fn woken(&mut self) -> Reason {
        match self.0.changed().await {
            Ok(()) => *self.0.borrow_and_update(),
            // The store is gone: nobody will ever call.
            Err(_) => std::future::pending().await,
        }
    }
}
