//! The stores of a fleet at one moment, and how the next list is made of the last.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::discovery::Changes;
use super::key::StoreKey;
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::room::Postroom;

/// One store of a fleet. It is opened when it is first needed, and then kept.
pub(super) struct Member {
    pub(super) key: StoreKey,
    /// Where it stands in the fleet.
    pub(super) position: u64,
    /// What logs and metrics call it.
    pub(super) identifier: String,
    /// As the list or the discovery gave them, to see whether they change.
    given: Options,
    options: Options,
    room: Mutex<Option<Postroom>>,
    deployed: OnceCell<()>,
}

impl Member {
    /// The store, which need not be reachable. An SQLite file is opened here, if it can be.
    pub(super) fn room(&self) -> Result<Postroom, Error> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = &*room {
            return Ok(room.clone());
        }
        let opened = Postroom::open_unconnected(self.options.clone(), Some(self.key.clone()))?;
        Ok(room.insert(opened).clone())
    }

    /// The store, opened away from the async threads, and deployed if its options ask for that.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<Postroom, Error> {
        let member = Arc::clone(self);
        let room = tokio::task::spawn_blocking(move || member.room())
            .await
            .map_err(|_| ErrorKind::Transient.with("the store was not opened: shutting down"))??;
        if self.options.deploy {
            self.deployed.get_or_try_init(|| room.deploy()).await?;
        }
        Ok(room)
    }

    /// Whether its schema is still to be deployed.
    pub(super) fn wants_deployment(&self) -> bool {
        self.options.deploy && !self.deployed.initialized()
    }
}

/// All stores, in their order.
#[derive(Default)]
pub(super) struct Roster {
    members: Vec<Arc<Member>>,
    by_key: HashMap<StoreKey, usize>,
    next_position: u64,
}

/// What is on no list, and why.
pub(super) type Skipped = Vec<(StoreKey, Error)>;

impl Roster {
    pub(super) fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    pub(super) fn find(&self, key: &StoreKey) -> Option<&Arc<Member>> {
        Some(&self.members[*self.by_key.get(key)?])
    }

    /// The list that `wanted` asks for: new stores, those whose options have changed as new ones in the old
    /// place, and the others just as they are. What is wrong, or would share its tables with another
    /// store, is left out.
    pub(super) fn next(
        &self,
        wanted: Vec<(StoreKey, Options)>,
        equip: impl Fn(Options) -> Options,
    ) -> (Self, Changes, Skipped) {
        let is_known = |(key, options): &(StoreKey, Options)| {
            self.find(key)
                .is_some_and(|member| member.given.is_same_as(options))
        };
        // A store that is there already is not given up for a newcomer.
        let (known, others): (Vec<_>, Vec<_>) = wanted.into_iter().partition(is_known);
        let mut next_position = self.next_position;
        let mut members: Vec<Arc<Member>> = Vec::with_capacity(known.len() + others.len());
        let mut taken = Taken::default();
        let (mut changes, mut skipped) = (Changes::default(), Skipped::new());
        for (key, options) in known.into_iter().chain(others) {
            let identifier = match taken.take(&key, &options) {
                Ok(identifier) => identifier,
                Err(error) => {
                    skipped.push((key, error));
                    continue;
                }
            };
            let before = self.find(&key);
            if let Some(same) = before.filter(|before| before.given.is_same_as(&options)) {
                changes.kept += 1;
                members.push(Arc::clone(same));
                continue;
            }
            let position = if let Some(before) = before {
                changes.changed.push(key.clone());
                before.position
            } else {
                changes.added.push(key.clone());
                next_position += 1;
                next_position
            };
            members.push(Arc::new(Member {
                key,
                position,
                identifier,
                options: equip(options.clone()),
                given: options,
                room: Mutex::default(),
                deployed: OnceCell::new(),
            }));
        }
        members.sort_by_key(|member| member.position);
        let by_key = members
            .iter()
            .enumerate()
            .map(|(index, member)| (member.key.clone(), index))
            .collect();
        let next = Self {
            members,
            by_key,
            next_position,
        };
        let gone = self.members.iter().map(|member| &member.key);
        changes.removed = gone
            .filter(|key| next.find(key).is_none())
            .cloned()
            .collect();
        (next, changes, skipped)
    }
}

/// Keys and stores that are on the list already.
#[derive(Default)]
struct Taken {
    keys: HashSet<StoreKey>,
    stores: HashMap<String, StoreKey>,
}

impl Taken {
    /// Takes a place on the list, and says what the store is called.
    fn take(&mut self, key: &StoreKey, options: &Options) -> Result<String, Error> {
        key.check()?;
        options.check()?;
        let (identifier, identity) = (options.store_identifier()?, options.store_identity()?);
        if self.keys.contains(key) {
            return Err(ErrorKind::AlreadyExists { what: "key" }
                .with(format!("`{key}` is on the list twice")));
        }
        if let Some(other) = self.stores.get(&identity) {
            return Err(ErrorKind::AlreadyExists { what: "store" }.with(format!(
                "`{other}` and `{key}` would share {identifier}; give each a schema of its own"
            )));
        }
        self.keys.insert(key.clone());
        self.stores.insert(identity, key.clone());
        Ok(identifier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(stores: &[(&str, &str)]) -> Vec<(StoreKey, Options)> {
        stores
            .iter()
            .map(|(key, url)| ((*key).into(), Options::new(*url)))
            .collect()
    }

    fn next(roster: &Roster, stores: &[(&str, &str)]) -> (Roster, Changes, Skipped) {
        roster.next(list(stores), |options| options)
    }

    fn keys(roster: &Roster) -> Vec<&str> {
        roster
            .members()
            .iter()
            .map(|member| member.key.as_str())
            .collect()
    }

    #[test]
    fn stores_keep_their_place_and_new_ones_go_to_the_end() {
        let (first, ..) = next(&Roster::default(), &[("b", "sqlite:b"), ("a", "sqlite:a")]);
        assert_eq!(keys(&first), ["b", "a"]);
        let (second, ..) = next(
            &first,
            &[("c", "sqlite:c"), ("a", "sqlite:other"), ("b", "sqlite:b")],
        );
        assert_eq!(keys(&second), ["b", "a", "c"]);
        let (third, ..) = next(&second, &[("b", "sqlite:b"), ("c", "sqlite:c")]);
        assert_eq!(keys(&third), ["b", "c"]);
        let (fourth, ..) = next(
            &third,
            &[("b", "sqlite:b"), ("c", "sqlite:c"), ("a", "sqlite:a")],
        );
        assert_eq!(keys(&fourth), ["b", "c", "a"]);
    }

    #[test]
    fn what_stays_is_the_same_member() {
        let (first, ..) = next(&Roster::default(), &[("a", "sqlite:a"), ("b", "sqlite:b")]);
        let (second, changes, _) = next(&first, &[("a", "sqlite:a"), ("b", "sqlite:new")]);
        let member =
            |roster: &Roster, key: &str| Arc::clone(roster.find(&key.into()).expect("a member"));
        assert!(Arc::ptr_eq(&member(&first, "a"), &member(&second, "a")));
        assert!(!Arc::ptr_eq(&member(&first, "b"), &member(&second, "b")));
        assert_eq!(changes.kept, 1);
        assert_eq!(changes.changed, ["b".into()]);
    }

    #[test]
    fn a_newcomer_does_not_take_the_store_of_another() {
        let (first, ..) = next(&Roster::default(), &[("old", "sqlite:a")]);
        let (second, _, skipped) = next(&first, &[("new", "sqlite:a"), ("old", "sqlite:a")]);
        assert_eq!(keys(&second), ["old"]);
        let (key, error) = &skipped[0];
        assert_eq!(key.as_str(), "new");
        assert!(error.to_string().contains("`old` and `new`"), "{error}");
    }

    #[test]
    fn two_stores_may_change_places() {
        let (first, ..) = next(&Roster::default(), &[("a", "sqlite:a"), ("b", "sqlite:b")]);
        let (second, changes, skipped) = next(&first, &[("a", "sqlite:b"), ("b", "sqlite:a")]);
        assert!(skipped.is_empty());
        assert_eq!(keys(&second), ["a", "b"]);
        assert_eq!(changes.changed.len(), 2);
    }

    #[test]
    fn a_prefix_in_capitals_is_the_same_prefix_on_sqlite() {
        let wanted = vec![
            ("a".into(), Options::new("sqlite:x").schema("Shop")),
            ("b".into(), Options::new("sqlite:x").schema("shop")),
        ];
        let (roster, _, skipped) = Roster::default().next(wanted, |options| options);
        assert_eq!(keys(&roster), ["a"]);
        assert_eq!(skipped.len(), 1);
    }
}
