//! The audit trail: who did what to which messages, when, by the database's clock. Never a payload.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind, stored_error};
use crate::message::{NAME_LIMIT, check_name, time};
use crate::room::Postroom;
use crate::sql::Row;
use crate::store::{CLEANUP_BATCH, Store, retention_micros};

/// A subject may be a filter, which is longer than a name.
const SUBJECT_LIMIT: usize = 600;

/// The most entries that one call gives back.
const LARGEST_PAGE: u32 = 1_000;

impl Postroom {
    /// The audit trail of this store: what operators have done to its messages.
    #[must_use]
    pub fn audit(&self) -> Audit {
        Audit {
            store: Arc::clone(&self.store),
        }
    }
}

/// The audit trail of a store. Cheap to clone. Nothing is written into it by itself: whoever lets people
/// replay, purge or revive messages records it.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # use postroom::{AuditEntry, Postroom};
/// # let room = Postroom::connect("sqlite::memory:").await?;
/// # room.deploy().await?;
/// let audit = room.audit();
/// audit.record(&AuditEntry::new("ada", "dead.replay", "topic=order.created").count(12)).await?;
///
/// let entries = audit.list(50, None).await?;
/// assert_eq!((entries[0].actor.as_str(), entries[0].count), ("ada", 12));
/// # Ok::<(), postroom::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Audit {
    store: Arc<Store>,
}

impl Audit {
    /// Adds an entry. Its id and time are the database's, whatever the entry says.
    ///
    /// # Errors
    /// `InvalidArgument`, naming `actor`, `action` or `subject`, when it is empty, too long (255
    /// characters, a subject 600) or holds a NUL; nothing was written then.
    pub async fn record(&self, entry: &AuditEntry) -> Result<(), Error> {
        check_name("actor", &entry.actor, NAME_LIMIT)?;
        check_name("action", &entry.action, NAME_LIMIT)?;
        check_name("subject", &entry.subject, SUBJECT_LIMIT)?;
        let count = i64::try_from(entry.count).map_err(|_| {
            ErrorKind::OutOfRange { param: "count" }.with("expected a 63-bit number")
        })?;
        let call = self.store.catalog.audit.record.call(vec![
            entry.actor.as_str().into(),
            entry.action.as_str().into(),
            entry.subject.as_str().into(),
            count.into(),
            entry.detail.as_deref().and_then(stored_error).into(),
        ]);
        self.store.run("record", "audit", vec![call]).await?;
        Ok(())
    }

    /// The newest entries, at most `limit`, 1 to 1,000. To page on, give the id of the last one as `after`.
    ///
    /// # Errors
    /// `OutOfRange` when `limit` is zero or beyond 1,000.
    pub async fn list(&self, limit: u32, after: Option<i64>) -> Result<Vec<AuditEntry>, Error> {
        if !(1..=LARGEST_PAGE).contains(&limit) {
            return Err(ErrorKind::OutOfRange { param: "limit" }
                .with(format!("expected 1 to {LARGEST_PAGE}")));
        }
        self.entries(limit, after, None).await
    }

    /// What was done to one subject, newest first, at most 1,000 entries: a message by its id, say.
    ///
    /// # Errors
    /// `InvalidArgument` when the subject is empty, longer than 600 characters or holds a NUL.
    pub async fn of(&self, subject: impl ToString) -> Result<Vec<AuditEntry>, Error> {
        let subject = subject.to_string();
        check_name("subject", &subject, SUBJECT_LIMIT)?;
        self.entries(LARGEST_PAGE, None, Some(subject)).await
    }

    async fn entries(
        &self,
        limit: u32,
        after: Option<i64>,
        subject: Option<String>,
    ) -> Result<Vec<AuditEntry>, Error> {
        let values = vec![after.into(), subject.into(), limit.into()];
        let call = self.store.catalog.audit.list.call(values);
        let rows = self.store.read("list", "audit", call).await?;
        rows.into_iter().map(AuditEntry::read).collect()
    }

    /// Deletes entries that are older than `older_than`, in batches, and says how many.
    ///
    /// # Errors
    /// When `older_than` is zero.
    pub async fn cleanup(&self, older_than: Duration) -> Result<u64, Error> {
        let age = retention_micros("older_than", older_than)?;
        self.store
            .in_batches(|| {
                let values = vec![age.into(), CLEANUP_BATCH.into()];
                let call = self.store.catalog.audit.cleanup.call(values);
                self.store.number("cleanup", "audit", call)
            })
            .await
    }
}

/// One line of the audit trail.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// Its number in the trail: a later entry has a higher one. Zero until it is recorded.
    pub id: i64,
    /// When it was recorded, by the database's clock; 1970 until it is.
    pub at: SystemTime,
    /// Who did it.
    pub actor: String,
    /// What was done, such as `dead.replay`.
    pub action: String,
    /// To what: a message id, or a filter such as `topic=order.created`.
    pub subject: String,
    /// How many messages that changed.
    pub count: u64,
    /// More about it, at most 2 KiB. Keep payloads and secrets out of it.
    pub detail: Option<String>,
}

impl AuditEntry {
    /// An entry about one message; see [`AuditEntry::count`] for more.
    pub fn new(
        actor: impl Into<String>,
        action: impl Into<String>,
        subject: impl ToString,
    ) -> Self {
        Self {
            id: 0,
            at: UNIX_EPOCH,
            actor: actor.into(),
            action: action.into(),
            subject: subject.to_string(),
            count: 1,
            detail: None,
        }
    }

    /// How many messages were changed; one unless told otherwise.
    #[must_use]
    pub fn count(mut self, count: u64) -> Self {
        self.count = count;
        self
    }

    /// More about it. It is cut to 2 KiB; keep payloads and secrets out of it.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Reads the columns of `audit_list.sql`.
    fn read(mut row: Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.int()?,
            at: time(row.int()?),
            actor: row.text()?,
            action: row.text()?,
            subject: row.text()?,
            count: row.count()?,
            detail: row.optional_text()?,
        })
    }
}
