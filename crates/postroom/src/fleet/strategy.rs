//! Which store is asked next.

use super::key::StoreKey;

/// Decides which store a dispatcher asks next. Each queue has a strategy of its own, a clone of what the
/// fleet was given.
///
/// ```
/// use postroom::fleet::{Asked, Candidate, RoundRobin, Strategy};
///
/// /// One store goes before all others whenever it can be asked.
/// #[derive(Clone)]
/// struct First(&'static str);
///
/// impl Strategy for First {
///     fn next(&mut self, stores: &[Candidate<'_>], last: Option<&Asked>) -> Option<usize> {
///         stores
///             .iter()
///             .position(|store| store.is_free() && store.key().as_str() == self.0)
///             .or_else(|| RoundRobin.next(stores, last))
///     }
/// }
/// ```
pub trait Strategy: Send + 'static {
    /// The index of the store to ask now. `stores` are in the order of the fleet: those that are
    /// [free](Candidate::is_free), and those that will be in a moment. Naming one of the latter, or none,
    /// is to wait. Stores that have just had nothing, that have failed or that are slow are not among
    /// them, so waiting is never for long.
    ///
    /// `last` is the store that was asked last.
    fn next(&mut self, stores: &[Candidate<'_>], last: Option<&Asked>) -> Option<usize>;
}

/// A store that could be asked.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    pub(super) key: &'a StoreKey,
    pub(super) position: u64,
    pub(super) free: bool,
}

impl<'a> Candidate<'a> {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> &'a StoreKey {
        self.key
    }

    /// Where it stands in the fleet: a store keeps its position for as long as it stays, and new ones go to
    /// the end.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether it can be asked now. If not, it is being asked, or has just given messages and its handlers
    /// are all busy.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.free
    }
}

/// A store that was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    pub(super) key: StoreKey,
    pub(super) position: u64,
    pub(super) claimed: Option<usize>,
}

impl Asked {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> &StoreKey {
        &self.key
    }

    /// Where it stood in the fleet.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How many messages it gave; `None` while there is no answer. A failure is an answer without messages.
    #[must_use]
    pub fn claimed(&self) -> Option<usize> {
        self.claimed
    }
}

/// One batch from each store, in order. The default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoundRobin;

impl Strategy for RoundRobin {
    fn next(&mut self, stores: &[Candidate<'_>], last: Option<&Asked>) -> Option<usize> {
        let after = |store: &Candidate<'_>| last.is_none_or(|last| store.position > last.position);
        stores
            .iter()
            .position(|store| store.free && after(store))
            .or_else(|| stores.iter().position(|store| store.free))
    }
}

/// The same store until it has nothing more, then the next. A store whose handlers are busy for longer than
/// a moment lets others go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DrainFirst;

impl Strategy for DrainFirst {
    fn next(&mut self, stores: &[Candidate<'_>], last: Option<&Asked>) -> Option<usize> {
        let same = last
            .filter(|last| last.claimed != Some(0))
            .and_then(|last| {
                stores
                    .iter()
                    .position(|store| store.position == last.position)
            });
        same.or_else(|| RoundRobin.next(stores, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores by position; a negative one is not free.
    fn next(
        strategy: &mut impl Strategy,
        stores: &[i64],
        last: Option<(u64, usize)>,
    ) -> Option<u64> {
        let key = StoreKey::from("any");
        let stores: Vec<_> = stores
            .iter()
            .map(|store| Candidate {
                key: &key,
                position: store.unsigned_abs(),
                free: *store > 0,
            })
            .collect();
        let last = last.map(|(position, claimed)| Asked {
            key: key.clone(),
            position,
            claimed: Some(claimed),
        });
        let index = strategy.next(&stores, last.as_ref())?;
        stores[index].free.then_some(stores[index].position)
    }

    #[test]
    fn round_robin_goes_on_to_the_next_that_is_free_and_begins_again() {
        assert_eq!(next(&mut RoundRobin, &[1, 2, 3], None), Some(1));
        assert_eq!(next(&mut RoundRobin, &[1, 2, 3], Some((1, 50))), Some(2));
        assert_eq!(next(&mut RoundRobin, &[1, -2, 3], Some((1, 50))), Some(3));
        assert_eq!(next(&mut RoundRobin, &[1, 2, 3], Some((3, 0))), Some(1));
        assert_eq!(next(&mut RoundRobin, &[1, 5], Some((3, 0))), Some(5));
        assert_eq!(next(&mut RoundRobin, &[], Some((3, 0))), None);
    }

    #[test]
    fn drain_first_stays_until_a_store_has_nothing_more() {
        assert_eq!(next(&mut DrainFirst, &[1, 2, 3], None), Some(1));
        assert_eq!(next(&mut DrainFirst, &[1, 2, 3], Some((2, 50))), Some(2));
        assert_eq!(next(&mut DrainFirst, &[1, 2, 3], Some((2, 1))), Some(2));
        assert_eq!(next(&mut DrainFirst, &[1, 2, 3], Some((2, 0))), Some(3));
    }

    #[test]
    fn drain_first_waits_for_a_store_that_is_back_in_a_moment() {
        assert_eq!(next(&mut DrainFirst, &[1, -2, 3], Some((2, 50))), None);
        assert_eq!(next(&mut DrainFirst, &[1, 3], Some((2, 50))), Some(3));
    }
}
