//! How the queues have been doing, sampled every few seconds: what the charts are drawn from.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use postroom::Stats;

/// How often a sample is taken.
pub(crate) const EVERY: Duration = Duration::from_secs(2);

/// How many samples are kept: an hour.
const KEPT: usize = 1_800;

/// The samples of every store.
#[derive(Default)]
pub(crate) struct Samples {
    stores: Mutex<BTreeMap<String, VecDeque<Sample>>>,
}

/// One store at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) taken: SystemTime,
    pub(crate) stats: Stats,
    /// Messages that were ever done, whoever did them. May start again from a smaller number.
    pub(crate) done: u64,
    /// Messages that ever died, and attempts of this process that ever failed.
    pub(crate) failed: u64,
}

impl Samples {
    pub(crate) fn add(&self, store: &str, sample: Sample) {
        let mut stores = self.lock();
        let samples = stores.entry(store.to_owned()).or_default();
        if samples.len() == KEPT {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The samples of a store, oldest first.
    pub(crate) fn of(&self, store: &str) -> Vec<Sample> {
        let stores = self.lock();
        stores
            .get(store)
            .map(|samples| samples.iter().copied().collect())
            .unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, VecDeque<Sample>>> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
