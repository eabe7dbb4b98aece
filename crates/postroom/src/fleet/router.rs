//! The fleet as its user sees it: stores by key, looked for again and again.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use super::builder::{FleetBuilder, MakeStrategy};
use super::discovery::{AnyDiscovery, Changes, look_again};
use super::gate::Gate;
use super::key::StoreKey;
use super::roster::{Member, Roster};
use crate::dispatch::{AbortOnDrop, Dispatcher};
use crate::error::{Error, ErrorKind};
use crate::inbox::Inbox;
use crate::message::NAME_LIMIT;
use crate::options::Options;
use crate::outbox::Outbox;
use crate::room::Postroom;

/// Many stores, known by key: see [the module](crate::fleet). Cheap to clone. Stores are looked for until
/// the last clone is dropped.
#[derive(Clone)]
pub struct Fleet {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) roster: watch::Sender<Arc<Roster>>,
    /// Stores that are there whatever discovery finds.
    pub(super) fixed: Vec<(StoreKey, Options)>,
    pub(super) discovery: Option<Arc<dyn AnyDiscovery>>,
    pub(super) every: Duration,
    /// One look at a time.
    pub(super) looking: Mutex<()>,
    at_once: usize,
    pub(super) patience: Duration,
    strategy: Arc<MakeStrategy>,
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
    budget: Arc<crate::db::Budget>,
    again: OnceLock<AbortOnDrop>,
}

impl Fleet {
    /// Puts a fleet together.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), postroom::Error> {
    /// use postroom::{Fleet, Options, fleet::DrainFirst};
    ///
    /// let fleet = Fleet::builder()
    ///     .store("acme", Options::new("postgres://db-1/acme"))
    ///     .store("globex", Options::new("postgres://db-2/globex"))
    ///     .connections(20)
    ///     .strategy(DrainFirst)
    ///     .open()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> FleetBuilder {
        FleetBuilder::default()
    }

    pub(super) async fn open(builder: FleetBuilder) -> Result<Self, Error> {
        let fleet = Self {
            inner: Arc::new(Inner {
                roster: watch::Sender::default(),
                fixed: builder.stores,
                discovery: builder.discovery,
                every: builder.every,
                looking: Mutex::default(),
                at_once: builder.at_once,
                patience: builder.patience,
                strategy: builder.strategy,
                #[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
                budget: crate::db::Budget::new(builder.connections),
                again: OnceLock::new(),
            }),
        };
        fleet.inner.begin()?;
        let found = fleet.refresh().await.is_ok();
        if fleet.inner.discovery.is_some() {
            let again = tokio::spawn(look_again(Arc::downgrade(&fleet.inner), found));
            let _ = fleet.inner.again.set(AbortOnDrop::from(again));
        }
        Ok(fleet)
    }

    /// The store with this key. It is opened when it is first asked for, and the same from then on; it need
    /// not be reachable now.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # use postroom::{Fleet, Options};
    /// let tenant = uuid::uuid!("0f8fad5b-d9cb-469f-a165-70867728950e");
    /// let fleet = Fleet::builder().store(tenant, Options::new("sqlite::memory:")).open().await?;
    /// assert!(fleet.room(tenant).is_ok());
    /// assert!(fleet.room("0F8FAD5B-D9CB-469F-A165-70867728950E").is_ok());
    /// assert_eq!(fleet.room("nobody").unwrap_err().to_string(), "store not found: the fleet has no `nobody`");
    /// # Ok::<(), postroom::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` when no store has this key, `InvalidArgument` when the key is empty, and when an SQLite
    /// file cannot be opened.
    pub fn room(&self, key: impl Into<StoreKey>) -> Result<Postroom, Error> {
        self.member(&key.into())?.room()
    }

    /// The outbox of the store with this key.
    ///
    /// # Errors
    /// As [`Fleet::room`].
    pub fn outbox(&self, key: impl Into<StoreKey>) -> Result<Outbox, Error> {
        Ok(self.room(key)?.outbox())
    }

    /// The inbox of the store with this key.
    ///
    /// # Errors
    /// As [`Fleet::room`].
    pub fn inbox(&self, key: impl Into<StoreKey>) -> Result<Inbox, Error> {
        Ok(self.room(key)?.inbox())
    }

    /// What logs and metrics call the store with this key: always the same, and of no other store.
    ///
    /// # Errors
    /// `NotFound` when no store has this key.
    pub fn identifier(&self, key: impl Into<StoreKey>) -> Result<String, Error> {
        Ok(self.member(&key.into())?.identifier.clone())
    }

    /// The keys of all stores, in the order of the fleet.
    #[must_use]
    pub fn keys(&self) -> Vec<StoreKey> {
        let roster = self.roster();
        let keys = roster.members().iter().map(|member| member.key.clone());
        keys.collect()
    }

    /// Looks for stores now, and says what has changed. Without discovery nothing does.
    ///
    /// # Errors
    /// When the discovery fails: then all stores stay as they are.
    pub async fn refresh(&self) -> Result<Changes, Error> {
        self.inner.look().await
    }

    /// A dispatcher for all stores: the same handlers and settings as for one, and the same ways to run it.
    /// Unless told otherwise, each queue of each store runs 8 handlers at once, and nobody listens for
    /// other processes, which would take a connection per store beside the budget: their messages are found
    /// by polling.
    pub fn dispatcher(&self) -> Dispatcher {
        Dispatcher::of_fleet(self.clone())
    }

    pub(super) fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.inner.roster.borrow())
    }

    /// Who is asked next, for one queue of one dispatcher.
    pub(super) fn gate(&self) -> Arc<Gate> {
        Gate::new((self.inner.strategy)(), self.inner.at_once)
    }

    fn member(&self, key: &StoreKey) -> Result<Arc<Member>, Error> {
        key.check()?;
        self.roster().find(key).cloned().ok_or_else(|| {
            ErrorKind::NotFound { what: "store" }
                .with(format!("the fleet has no `{:.NAME_LIMIT$}`", key.as_str()))
        })
    }
}

impl Inner {
    /// The options of a store, with its share of the connections.
    pub(super) fn equip(&self, options: Options) -> Options {
        #[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
        {
            let share = self.budget.share();
            let mut options = options;
            options.connections = options.connections.min(share.connections());
            options.budget = Some(share);
            options
        }
        #[cfg(not(any(feature = "postgres", feature = "mysql", feature = "mssql")))]
        options
    }
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet")
            .field("stores", &self.keys())
            .finish_non_exhaustive()
    }
}
