//! Who is asked next. Stores line up when they are due; one is called whenever there is a place, and the
//! strategy says which. There is no task here: whoever changes something calls the next.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::key::StoreKey;
use super::strategy::{Asked, Candidate, RoundRobin, Strategy};

/// The line of one queue of one dispatcher.
pub(super) struct Gate(Mutex<Line>);

struct Line {
    strategy: Box<dyn Strategy>,
    /// How many more stores may be asked now.
    free: usize,
    seats: BTreeMap<SeatId, Place>,
    next_serial: u64,
    last: Option<Asked>,
}

/// The position in the fleet first. A store that was opened anew has the position of the old one, which may
/// still be finishing.
type SeatId = (u64, u64);

struct Place {
    key: StoreKey,
    standing: Standing,
    called: Arc<Notify>,
}

/// How a store stands in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not to be reckoned with: it has nothing, it fails, or it is slow.
    Away,
    /// It has just given messages and will be back in a moment.
    Coming,
    /// It wants to be asked.
    Waiting,
    /// It is being asked.
    Called,
}

impl Gate {
    pub(super) fn new(strategy: Box<dyn Strategy>, at_once: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Line {
            strategy,
            free: at_once,
            seats: BTreeMap::new(),
            next_serial: 0,
            last: None,
        })))
    }

    /// A store comes in.
    pub(super) fn seat(self: &Arc<Self>, key: &StoreKey, position: u64) -> Seat {
        let mut line = self.line();
        line.next_serial += 1;
        let id = (position, line.next_serial);
        let called = Arc::new(Notify::new());
        let place = Place {
            key: key.clone(),
            standing: Standing::Away,
            called: Arc::clone(&called),
        };
        line.seats.insert(id, place);
        Seat {
            gate: Arc::clone(self),
            id,
            called,
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One store in the line. It leaves when this is dropped.
pub(super) struct Seat {
    gate: Arc<Gate>,
    id: SeatId,
    called: Arc<Notify>,
}

impl Seat {
    /// Comes back when the store is called. It must be [waiting](Standing::Waiting).
    pub(super) async fn called(&self) {
        while self.standing() != Standing::Called {
            self.called.notified().await;
        }
    }

    /// Stands otherwise from now on. Whoever was called gives its place to another.
    pub(super) fn stand(&self, standing: Standing) {
        let mut line = self.gate.line();
        line.stand(self.id, standing);
        line.call();
    }

    /// An answer has come, late or not: so many messages.
    pub(super) fn answered(&self, claimed: usize, standing: Standing) {
        let mut line = self.gate.line();
        if let Some(last) = &mut line.last
            && last.position == self.id.0
            && last.claimed.is_none()
        {
            last.claimed = Some(claimed);
        }
        line.stand(self.id, standing);
        line.call();
    }

    fn standing(&self) -> Standing {
        let line = self.gate.line();
        let place = line.seats.get(&self.id);
        place.map_or(Standing::Away, |place| place.standing)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut line = self.gate.line();
        line.stand(self.id, Standing::Away);
        line.seats.remove(&self.id);
        line.call();
    }
}

impl Line {
    fn stand(&mut self, id: SeatId, standing: Standing) {
        if let Some(place) = self.seats.get_mut(&id) {
            if place.standing == Standing::Called {
                self.free += 1;
            }
            place.standing = standing;
        }
    }

    /// Calls whom the strategy names, for as long as there are places.
    fn call(&mut self) {
        while self.free > 0 {
            let Some(id) = self.next() else {
                return;
            };
            let Some(place) = self.seats.get_mut(&id) else {
                return;
            };
            self.free -= 1;
            place.standing = Standing::Called;
            place.called.notify_one();
            self.last = Some(Asked {
                key: place.key.clone(),
                position: id.0,
                claimed: None,
            });
        }
    }

    fn next(&mut self) -> Option<SeatId> {
        let here = self
            .seats
            .iter()
            .filter(|(_, place)| place.standing != Standing::Away);
        let (ids, stores): (Vec<SeatId>, Vec<Candidate<'_>>) = here
            .map(|(id, place)| {
                let candidate = Candidate {
                    key: &place.key,
                    position: id.0,
                    free: place.standing == Standing::Waiting,
                };
                (*id, candidate)
            })
            .unzip();
        if !stores.iter().any(Candidate::is_free) {
            return None;
        }
        let (strategy, last) = (&mut self.strategy, self.last.as_ref());
        // The strategy may be somebody else's code. Work goes on without it.
        let next = catch_unwind(AssertUnwindSafe(|| strategy.next(&stores, last)));
        let index = next.unwrap_or_else(|_| {
            tracing::error!("the strategy of a fleet panicked; the next store in order is asked");
            RoundRobin.next(&stores, last)
        })?;
        stores.get(index)?.is_free().then(|| ids[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::DrainFirst;

    /// The stores that were called, by number, after each of them has said how it stands.
    fn called(seats: &[Seat]) -> Vec<usize> {
        (0..seats.len())
            .filter(|index| seats[*index].standing() == Standing::Called)
            .collect()
    }

    fn line(strategy: impl Strategy, at_once: usize) -> Vec<Seat> {
        let gate = Gate::new(Box::new(strategy), at_once);
        let seats: Vec<Seat> = (0..3)
            .map(|position| gate.seat(&"any".into(), position))
            .collect();
        seats.iter().for_each(|seat| seat.stand(Standing::Waiting));
        seats
    }

    #[test]
    fn stores_are_asked_one_after_the_other_in_order() {
        let seats = line(RoundRobin, 1);
        for expected in [0, 1, 2, 0, 1] {
            assert_eq!(called(&seats), [expected]);
            seats[expected].answered(10, Standing::Waiting);
        }
    }

    #[test]
    fn several_are_asked_at_once_when_that_is_allowed() {
        let seats = line(RoundRobin, 2);
        assert_eq!(called(&seats), [0, 1]);
        seats[1].answered(0, Standing::Away);
        assert_eq!(called(&seats), [0, 2]);
    }

    #[test]
    fn a_store_that_takes_long_gives_its_place_to_another() {
        let seats = line(DrainFirst, 1);
        assert_eq!(called(&seats), [0]);
        seats[0].stand(Standing::Away);
        assert_eq!(called(&seats), [1]);
        seats[0].answered(10, Standing::Waiting);
        assert_eq!(called(&seats), [1], "the place is taken");
    }

    #[test]
    fn a_store_that_leaves_gives_its_place_back() {
        let mut seats = line(RoundRobin, 1);
        drop(seats.remove(0));
        assert_eq!(called(&seats), [0]);
    }

    #[test]
    fn a_store_that_is_coming_back_is_waited_for_by_drain_first_only() {
        let seats = line(DrainFirst, 1);
        seats[0].answered(10, Standing::Coming);
        assert_eq!(called(&seats), [] as [usize; 0]);
        seats[0].stand(Standing::Away);
        assert_eq!(called(&seats), [1]);
        let seats = line(RoundRobin, 1);
        seats[0].answered(10, Standing::Coming);
        assert_eq!(called(&seats), [1]);
    }

    #[test]
    fn a_strategy_that_panics_does_not_stop_the_work() {
        #[derive(Clone)]
        struct Broken;
        impl Strategy for Broken {
            fn next(&mut self, _: &[Candidate<'_>], _: Option<&Asked>) -> Option<usize> {
                panic!("broken")
            }
        }
        let seats = line(Broken, 1);
        assert_eq!(called(&seats), [0]);
        seats[0].answered(1, Standing::Waiting);
        assert_eq!(called(&seats), [1]);
    }
}
