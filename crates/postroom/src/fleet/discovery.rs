//! Looking for stores: once at the start, then again and again.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use metrics::counter;
use tokio::sync::mpsc;

use super::key::StoreKey;
use super::roster::{Member, Roster};
use super::router::Inner;
use crate::db::BoxFuture;
use crate::error::{Error, ErrorKind};
use crate::options::Options;

/// Says which stores there are now. A closure can do that too.
///
/// ```no_run
/// use postroom::fleet::{Discovery, DiscoveryError, StoreKey};
/// use postroom::Options;
///
/// /// A table of tenants.
/// struct Tenants(tokio_postgres::Client);
///
/// impl Discovery for Tenants {
///     async fn discover(&self) -> Result<Vec<(StoreKey, Options)>, DiscoveryError> {
///         let rows = self.0.query("SELECT name, database_url FROM tenants", &[]).await?;
///         Ok(rows
///             .iter()
///             .map(|row| (row.get::<_, &str>(0).into(), Options::new(row.get::<_, &str>(1))))
///             .collect())
///     }
/// }
/// ```
pub trait Discovery: Send + Sync + 'static {
    /// All stores that there are. Stores that are missing are removed, new ones are added, and those whose
    /// options have not changed are left alone. An error leaves everything as it is.
    fn discover(
        &self,
    ) -> impl Future<Output = Result<Vec<(StoreKey, Options)>, DiscoveryError>> + Send;
}

/// Why stores could not be looked for. It is logged, without the URLs in it.
pub type DiscoveryError = Box<dyn std::error::Error + Send + Sync>;

impl<F, Found> Discovery for F
where
    F: Fn() -> Found + Send + Sync + 'static,
    Found: Future<Output = Result<Vec<(StoreKey, Options)>, DiscoveryError>> + Send,
{
    fn discover(
        &self,
    ) -> impl Future<Output = Result<Vec<(StoreKey, Options)>, DiscoveryError>> + Send {
        self()
    }
}

/// A discovery of any type.
pub(super) trait AnyDiscovery: Send + Sync {
    fn discover_any(&self) -> BoxFuture<'_, Result<Vec<(StoreKey, Options)>, DiscoveryError>>;
}

impl<D: Discovery> AnyDiscovery for D {
    fn discover_any(&self) -> BoxFuture<'_, Result<Vec<(StoreKey, Options)>, DiscoveryError>> {
        Box::pin(self.discover())
    }
}

/// What a look for stores has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Changes {
    /// Stores that are new.
    pub added: Vec<StoreKey>,
    /// Stores that are gone. What they were working on may finish.
    pub removed: Vec<StoreKey>,
    /// Stores whose options have changed: they are opened anew.
    pub changed: Vec<StoreKey>,
    /// How many stores have stayed as they were.
    pub kept: usize,
    /// Stores that are left out, because their key or options are not valid or another has the same tables.
    pub skipped: Vec<StoreKey>,
}

/// A discovery that takes longer counts as failed.
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// The first pause after a discovery has failed.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How many deployments run at once, and how long one may take before others go first.
const DEPLOYMENTS_AT_ONCE: usize = 8;
const LONGEST_DEPLOYMENT: Duration = Duration::from_secs(30);

/// When no deployment ends for this long, nobody waits for the rest any more.
const STANDSTILL: Duration = Duration::from_secs(10);

/// Looks for stores until the fleet is gone.
pub(super) async fn look_again(fleet: Weak<Inner>, mut found: bool) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(every) = fleet.upgrade().map(|fleet| fleet.every) else {
            return;
        };
        if found {
            pause = FIRST_PAUSE;
            tokio::time::sleep(every).await;
        } else {
            tokio::time::sleep(pause.min(every)).await;
            pause = pause.saturating_mul(2);
        }
        let Some(fleet) = fleet.upgrade() else {
            return;
        };
        found = fleet.look().await.is_ok();
    }
}

impl Inner {
    /// The list that the fleet starts with, which has to be right.
    pub(super) fn begin(&self) -> Result<(), Error> {
        let (roster, _, skipped) =
            Roster::default().next(self.fixed.clone(), |options| self.equip(options));
        match skipped.into_iter().next() {
            Some((_, error)) => Err(error),
            None => {
                self.roster.send_replace(Arc::new(roster));
                Ok(())
            }
        }
    }

    /// Looks for stores once.
    pub(super) async fn look(&self) -> Result<Changes, Error> {
        let _looking = self.looking.lock().await;
        let found = match &self.discovery {
            None => Vec::new(),
            Some(discovery) => discover(&**discovery).await.inspect_err(|error| {
                tracing::error!(%error, "stores could not be discovered; the fleet stays as it is");
                counter!("postroom_discoveries_failed_total").increment(1);
            })?,
        };
        let wanted = self.fixed.iter().cloned().chain(found).collect();
        let before = Arc::clone(&self.roster.borrow());
        let (roster, mut changes, skipped) = before.next(wanted, |options| self.equip(options));
        let roster = Arc::new(roster);
        tell(&before, &roster, &changes);
        for (key, error) in skipped {
            tracing::error!(%key, %error, "a store is left out of the fleet");
            changes.skipped.push(key);
        }
        self.roster.send_replace(Arc::clone(&roster));
        deploy(roster.members()).await;
        Ok(changes)
    }
}

/// Asks the discovery, which is somebody else's code.
async fn discover(discovery: &dyn AnyDiscovery) -> Result<Vec<(StoreKey, Options)>, Error> {
    let found = AssertUnwindSafe(async { discovery.discover_any().await }).catch_unwind();
    match tokio::time::timeout(LONGEST_LOOK, found).await {
        Ok(Ok(Ok(found))) => Ok(found),
        Ok(Ok(Err(error))) => Err(ErrorKind::Transient.with(format!(
            "the discovery failed: {}",
            without_addresses(&error.to_string())
        ))),
        Ok(Err(_)) => Err(ErrorKind::Transient.with("the discovery panicked")),
        Err(_) => Err(ErrorKind::Transient.with(format!(
            "the discovery took longer than {} s",
            LONGEST_LOOK.as_secs()
        ))),
    }
}

fn tell(before: &Roster, now: &Roster, changes: &Changes) {
    for key in &changes.removed {
        if let Some(member) = before.find(key) {
            tracing::info!(store = member.identifier, %key, "a store has left the fleet");
        }
    }
    for key in &changes.added {
        if let Some(member) = now.find(key) {
            tracing::info!(store = member.identifier, %key, "a store has joined the fleet");
        }
    }
    for key in &changes.changed {
        if let Some(member) = now.find(key) {
            tracing::info!(store = member.identifier, %key, "a store's options have changed; it is opened anew");
        }
    }
}

/// Deploys what asks for it, and waits for that for as long as it gets on: it goes on without us. Whoever
/// fails is tried again when a dispatcher uses it, and at the next look.
async fn deploy(members: &[Arc<Member>]) {
    let waiting: Vec<Arc<Member>> = members
        .iter()
        .filter(|member| member.wants_deployment())
        .cloned()
        .collect();
    let (progress, mut made) = mpsc::unbounded_channel();
    tokio::spawn(
        stream::iter(waiting).for_each_concurrent(DEPLOYMENTS_AT_ONCE, move |member| {
            let progress = progress.clone();
            async move {
                deploy_one(&member).await;
                let _ = progress.send(());
            }
        }),
    );
    while let Ok(Some(())) = tokio::time::timeout(STANDSTILL, made.recv()).await {}
}

async fn deploy_one(member: &Arc<Member>) {
    let deployed = tokio::time::timeout(LONGEST_DEPLOYMENT, member.ready()).await;
    let deployed = deployed
        .unwrap_or_else(|_| Err(ErrorKind::Transient.with("the store did not answer in time")));
    if let Err(error) = deployed {
        tracing::warn!(store = member.identifier, key = %member.key, %error, "a store could not be deployed yet");
    }
}

/// A text without the URLs and passwords in it.
fn without_addresses(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace).map(|word| {
        let lower = word.to_ascii_lowercase();
        if lower.contains("://") || lower.contains("password") || lower.contains('@') {
            let end = word.trim_end().len();
            format!("[hidden]{}", &word[end..])
        } else {
            word.to_owned()
        }
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::without_addresses;

    #[test]
    fn addresses_and_passwords_are_hidden() {
        assert_eq!(
            without_addresses(
                "no way to postgres://u:secret@host/db (refused) password=secret\nfor u@host"
            ),
            "no way to [hidden] (refused) [hidden]\nfor [hidden]"
        );
    }
}
