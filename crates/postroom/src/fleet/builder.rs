//! How a fleet is put together.

use std::sync::Arc;
use std::time::Duration;

use super::discovery::{AnyDiscovery, Discovery};
use super::key::StoreKey;
use super::router::Fleet;
use super::strategy::{RoundRobin, Strategy};
use crate::error::{Error, ErrorKind};
use crate::options::Options;

/// A fleet before it is opened: see [`Fleet::builder`].
#[must_use = "a fleet does nothing until it is opened"]
pub struct FleetBuilder {
    pub(super) stores: Vec<(StoreKey, Options)>,
    pub(super) discovery: Option<Arc<dyn AnyDiscovery>>,
    pub(super) every: Duration,
    pub(super) connections: usize,
    pub(super) at_once: usize,
    pub(super) patience: Duration,
    pub(super) strategy: Arc<MakeStrategy>,
}

/// Makes the strategy of a queue.
pub(super) type MakeStrategy = dyn Fn() -> Box<dyn Strategy> + Send + Sync;

/// A handler's transaction, what it does beside it, and one more store at work.
const FEWEST_CONNECTIONS: usize = 4;

const LONGEST_PATIENCE: Duration = Duration::from_secs(60 * 60);

impl Default for FleetBuilder {
    fn default() -> Self {
        Self {
            stores: Vec::new(),
            discovery: None,
            every: Duration::from_secs(5 * 60),
            connections: 64,
            at_once: 1,
            patience: Duration::from_millis(250),
            strategy: Arc::new(|| Box::new(RoundRobin)),
        }
    }
}

impl FleetBuilder {
    /// Adds a store that stays for as long as the fleet does.
    pub fn store(mut self, key: impl Into<StoreKey>, options: Options) -> Self {
        self.stores.push((key.into(), options));
        self
    }

    /// Looks for stores now and [again and again](Self::every). A fleet with discovery may start with no
    /// store at all.
    pub fn discover(mut self, discovery: impl Discovery) -> Self {
        self.discovery = Some(Arc::new(discovery));
        self
    }

    /// How often to look for stores, every 5 minutes by default. After a failure it is tried again sooner.
    pub fn every(mut self, interval: Duration) -> Self {
        self.every = interval;
        self
    }

    /// How many connections all PostgreSQL stores have together, 64 by default and 4 at least. One store
    /// never has more than half of them. With fewer connections than stores, idle ones are closed for
    /// others, and opening them again costs time.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Which store is asked next: [`RoundRobin`] by default, [`DrainFirst`](super::DrainFirst), or your
    /// own. Each queue gets a clone.
    pub fn strategy(mut self, strategy: impl Strategy + Clone + Sync) -> Self {
        self.strategy = Arc::new(move || Box::new(strategy.clone()));
        self
    }

    /// How many stores each queue asks at once, 1 by default: then stores are asked in exactly the order
    /// of the strategy. More is faster when there are hundreds of stores or the way to them is long. A store
    /// that takes long to answer never counts: it is waited for while others are asked.
    pub fn at_once(mut self, stores: usize) -> Self {
        self.at_once = stores;
        self
    }

    /// How long others wait for a store that is being asked, 250 ms by default. One that takes longer is not
    /// reckoned with until it answers in time again, so a store whose database is slow does not slow down the
    /// rest; with more patience the order of the strategy is kept for longer.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Opens the fleet. Stores are connected to when they are needed, so one that is down is no error here:
    /// it is tried again and again. Those whose [options](Options::deploy) ask for it are deployed.
    ///
    /// # Errors
    /// When a setting, a key or the options of a store are not valid, when two keys are the same or name
    /// the same store, and when there are neither stores nor discovery.
    pub async fn open(self) -> Result<Fleet, Error> {
        if self.every.is_zero() {
            return Err(ErrorKind::OutOfRange { param: "every" }.with("must be longer than zero"));
        }
        if !(FEWEST_CONNECTIONS..=10_000).contains(&self.connections) {
            return Err(ErrorKind::OutOfRange {
                param: "connections",
            }
            .with(format!(
                "expected {FEWEST_CONNECTIONS} to 10000, got {}",
                self.connections
            )));
        }
        if !(1..=1000).contains(&self.at_once) {
            return Err(ErrorKind::OutOfRange { param: "at_once" }
                .with(format!("expected 1 to 1000, got {}", self.at_once)));
        }
        if self.patience.is_zero() || self.patience > LONGEST_PATIENCE {
            return Err(ErrorKind::OutOfRange { param: "patience" }
                .with("must be longer than zero, and an hour at most"));
        }
        if self.stores.is_empty() && self.discovery.is_none() {
            return Err(ErrorKind::InvalidArgument { param: "stores" }.with(
                "there are none; add one with `store`, or let them be found with `discover`",
            ));
        }
        Fleet::open(self).await
    }
}

impl std::fmt::Debug for FleetBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys: Vec<&str> = self.stores.iter().map(|(key, _)| key.as_str()).collect();
        f.debug_struct("FleetBuilder")
            .field("stores", &keys)
            .field("every", &self.every)
            .field("connections", &self.connections)
            .field("at_once", &self.at_once)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
