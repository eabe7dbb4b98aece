//! Joins: waiting for a group of messages before going on.
//!
//! A join expects a number of steps. Each step is an outbox message; when it is acked or failed, the
//! same transaction moves the join's counters. When the last step is in, that transaction also makes
//! the join's wait messages ready.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::error::{Error, ErrorKind};
use crate::id::{JoinId, MessageId};
use crate::message::{NAME_LIMIT, check_name, check_optional_name, check_text, time};
use crate::sql::{Call, Row, Value};
use crate::store::{CLEANUP_BATCH, Store, retention_micros};
use crate::tx::{Executor, run_in};

/// The joins of a store. Cheap to clone.
///
/// ```no_run
/// # async fn example(room: postroom::Postroom) -> Result<(), postroom::Error> {
/// use postroom::{JoinWait, Message, NewJoin};
///
/// let join = room.joins().start(&NewJoin::new(2).grouping_key("customer-7")).await?;
/// room.outbox()
///     .enqueue_many(&[
///         Message::new("extract.customers", "{}").join(join),
///         Message::new("extract.orders", "{}").join(join),
///     ])
///     .await?;
/// room.joins().enqueue_wait(&JoinWait::new(join, "transform", "{}")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Joins {
    pub(crate) store: Arc<Store>,
}

impl Joins {
    /// Starts a join: counters at zero, pending.
    ///
    /// # Errors
    /// When a value is not valid; nothing was written then.
    pub async fn start(&self, join: &NewJoin) -> Result<JoinId, Error> {
        let (id, call) = self.starting(join)?;
        self.store.run("start", "join", vec![call]).await?;
        self.log_started(id, join);
        Ok(id)
    }

    /// Starts a join in the caller's transaction.
    ///
    /// # Errors
    /// As [`Joins::start`], and when the client reports an error.
    pub async fn start_in<E: Executor>(
        &self,
        tx: &mut E,
        join: &NewJoin,
    ) -> Result<JoinId, E::Error> {
        let (id, call) = self.starting(join)?;
        run_in(&*self.store.db, tx, vec![call]).await?;
        self.log_started(id, join);
        Ok(id)
    }

    fn starting(&self, join: &NewJoin) -> Result<(JoinId, Call), Error> {
        join.check()?;
        let id = JoinId::new();
        let call = self.store.catalog.join.start.call(vec![
            id.as_uuid().into(),
            join.grouping_key
                .clone()
                .filter(|key| !key.is_empty())
                .into(),
            join.expected_steps.into(),
            join.metadata.clone().into(),
        ]);
        Ok((id, call))
    }

    fn log_started(&self, id: JoinId, join: &NewJoin) {
        tracing::info!(
            store = %self.store.identifier,
            join_id = %id,
            grouping_key = join.grouping_key.as_deref(),
            expected_steps = join.expected_steps,
            "join started"
        );
    }

    /// Makes a message a step of a join. Doing it twice changes nothing.
    ///
    /// [`Message::join`](crate::Message::join) does this together with the enqueue and is the better
    /// way: a message that was enqueued before may be acked before it is attached. The answer tells;
    /// [`Joins::reconcile`] then counts it.
    ///
    /// # Errors
    /// When the join does not exist.
    pub async fn attach(&self, join: JoinId, message: MessageId) -> Result<Attached, Error> {
        let values = vec![
            join.checked("join")?.into(),
            message.checked("message")?.into(),
        ];
        let output = self
            .store
            .run(
                "attach",
                "join",
                vec![self.store.catalog.join.attach.call(values).quick()],
            )
            .await?;
        let Some(mut row) = output.rows.into_iter().next() else {
            return Err(unknown_join(join));
        };
        let attached = match row.int()? {
            0 => Attached::Pending,
            1 => Attached::MessageAlreadyDone,
            2 => Attached::MessageAlreadyFailed,
            _ => Attached::UnknownMessage,
        };
        tracing::debug!(store = %self.store.identifier, join_id = %join, message_id = %message, ?attached, "attached to join");
        if row.int()? != 0 {
            tracing::warn!(store = %self.store.identifier, join_id = %join, message_id = %message, "attached to a join that has finished: the step will not count");
        }
        Ok(attached)
    }

    /// Reports by hand that a step is completed. Acks do this by themselves; this is for steps that
    /// end elsewhere.
    ///
    /// # Errors
    /// When the join does not exist.
    pub async fn report_completed(
        &self,
        join: JoinId,
        message: MessageId,
    ) -> Result<Reported, Error> {
        self.report(join, message, 1).await
    }

    /// Reports by hand that a step has failed.
    ///
    /// # Errors
    /// When the join does not exist.
    pub async fn report_failed(&self, join: JoinId, message: MessageId) -> Result<Reported, Error> {
        self.report(join, message, 2).await
    }

    async fn report(
        &self,
        join: JoinId,
        message: MessageId,
        status: i64,
    ) -> Result<Reported, Error> {
        let values = vec![
            join.checked("join")?.into(),
            message.checked("message")?.into(),
            status.into(),
        ];
        let output = self
            .store
            .run(
                "report",
                "join",
                vec![self.store.catalog.join.report.call(values).quick()],
            )
            .await?;
        let mut rows = output.rows.into_iter();
        let reported = match rows.next().map(|mut row| row.int()).transpose()? {
            Some(0) => Reported::Counted,
            Some(1) => Reported::AlreadyReported,
            Some(2) => Reported::OtherStatus,
            Some(3) => Reported::NotAMember,
            _ => return Err(unknown_join(join)),
        };
        if matches!(reported, Reported::OtherStatus | Reported::NotAMember) {
            tracing::warn!(store = %self.store.identifier, join_id = %join, message_id = %message, ?reported, "step report had no effect");
        }
        self.log_finished(rows)?;
        Ok(reported)
    }

    /// Counts the steps whose message was already done or dead when it was attached, and says how many.
    ///
    /// # Errors
    /// When the join does not exist.
    pub async fn reconcile(&self, join: JoinId) -> Result<u64, Error> {
        let values = vec![join.checked("join")?.into()];
        let output = self
            .store
            .run(
                "reconcile",
                "join",
                vec![self.store.catalog.join.reconcile.call(values)],
            )
            .await?;
        let mut rows = output.rows.into_iter();
        let counted = rows
            .next()
            .map(|mut row| row.int())
            .transpose()?
            .unwrap_or(-1);
        let counted = u64::try_from(counted).map_err(|_| unknown_join(join))?;
        self.log_finished(rows)?;
        Ok(counted)
    }

    fn log_finished(&self, rows: impl Iterator<Item = Row>) -> Result<(), Error> {
        for mut row in rows {
            row.optional_int()?;
            self.store.log_finished_join(&mut row)?;
        }
        Ok(())
    }

    /// Cancels a pending join: its counters freeze and its wait messages are woken. Says whether it was
    /// still pending.
    ///
    /// # Errors
    /// When the join does not exist.
    pub async fn cancel(&self, join: JoinId) -> Result<bool, Error> {
        let call = self
            .store
            .catalog
            .join
            .cancel
            .call(vec![join.checked("join")?.into()]);
        let output = self.store.run("cancel", "join", vec![call]).await?;
        match output
            .rows
            .into_iter()
            .next()
            .map(|mut row| row.int())
            .transpose()?
        {
            Some(1) => {
                tracing::info!(store = %self.store.identifier, join_id = %join, "join cancelled");
                Ok(true)
            }
            Some(0) => Ok(false),
            _ => Err(unknown_join(join)),
        }
    }

    /// One join.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn get(&self, join: JoinId) -> Result<Option<Join>, Error> {
        let call = self
            .store
            .catalog
            .join
            .get
            .call(vec![join.as_uuid().into()]);
        self.store
            .read("get", "join", call)
            .await?
            .into_iter()
            .next()
            .map(Join::read)
            .transpose()
    }

    /// The joins of a grouping key, oldest first, at most `limit` of those after `after`.
    ///
    /// # Errors
    /// When the key is empty or too long, or `limit` is zero or beyond 10,000.
    pub async fn list(
        &self,
        grouping_key: &str,
        after: Option<JoinId>,
        limit: u32,
    ) -> Result<Vec<Join>, Error> {
        check_name("grouping_key", grouping_key, NAME_LIMIT)?;
        let after = after.map(JoinId::as_uuid);
        let values = vec![grouping_key.into(), after.into(), page(limit)?];
        let rows = self
            .store
            .read("list", "join", self.store.catalog.join.list.call(values))
            .await?;
        rows.into_iter().map(Join::read).collect()
    }

    /// All joins, whatever they belong to, the newest first: at most `limit` of those that were started
    /// before `before`.
    ///
    /// # Errors
    /// When `limit` is zero or beyond 10,000.
    pub async fn recent(&self, before: Option<JoinId>, limit: u32) -> Result<Vec<Join>, Error> {
        let before = before.map(JoinId::as_uuid);
        let values = vec![before.into(), page(limit)?];
        let rows = self
            .store
            .read(
                "recent",
                "join",
                self.store.catalog.join.recent.call(values),
            )
            .await?;
        rows.into_iter().map(Join::read).collect()
    }

    /// The steps of a join by message id, at most `limit` of those after `after`.
    ///
    /// # Errors
    /// When `limit` is zero or beyond 10,000.
    pub async fn members(
        &self,
        join: JoinId,
        after: Option<MessageId>,
        limit: u32,
    ) -> Result<Vec<JoinMember>, Error> {
        let after = after.map(MessageId::as_uuid);
        let values = vec![join.as_uuid().into(), after.into(), page(limit)?];
        let rows = self
            .store
            .read(
                "members",
                "join",
                self.store.catalog.join.members.call(values),
            )
            .await?;
        rows.into_iter().map(JoinMember::read).collect()
    }

    /// Deletes joins that finished longer than `older_than` ago, with their members, in batches. Pending
    /// joins stay.
    ///
    /// # Errors
    /// When `older_than` is zero.
    pub async fn cleanup(&self, older_than: Duration) -> Result<u64, Error> {
        let age = retention_micros("older_than", older_than)?;
        self.store
            .in_batches(|| {
                let call = self
                    .store
                    .catalog
                    .join
                    .cleanup
                    .call(vec![age.into(), CLEANUP_BATCH.into()]);
                self.store.number("cleanup", "join", call)
            })
            .await
    }
}

/// A join that is about to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJoin {
    expected_steps: i64,
    grouping_key: Option<String>,
    metadata: Option<String>,
}

impl NewJoin {
    /// A join of so many steps, at least one.
    #[must_use]
    pub fn new(expected_steps: i32) -> Self {
        Self {
            expected_steps: expected_steps.into(),
            grouping_key: None,
            metadata: None,
        }
    }

    /// What the join belongs to, such as a customer. An empty one counts as none.
    #[must_use]
    pub fn grouping_key(mut self, key: impl Into<String>) -> Self {
        self.grouping_key = Some(key.into());
        self
    }

    /// Anything you want to keep with the join.
    #[must_use]
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.metadata = Some(metadata.into());
        self
    }

    fn check(&self) -> Result<(), Error> {
        if self.expected_steps <= 0 {
            return Err(ErrorKind::OutOfRange {
                param: "expected_steps",
            }
            .with(format!("expected at least 1, got {}", self.expected_steps)));
        }
        check_optional_name("grouping_key", self.grouping_key.as_deref())?;
        check_text("metadata", self.metadata.as_deref().unwrap_or_default())
    }
}

/// What became of the message when it was attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attached {
    /// It is still to be handled: its ack or fail will count.
    Pending,
    /// It was acked before: [`Joins::reconcile`] will count it.
    MessageAlreadyDone,
    /// It was failed before: [`Joins::reconcile`] will count it.
    MessageAlreadyFailed,
    /// The outbox does not know it (yet).
    UnknownMessage,
}

/// What a report by hand did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// The step has its status now, and the join has counted it unless it had finished.
    Counted,
    /// It had this status before; nothing changed.
    AlreadyReported,
    /// It had the other status before; the first one stays.
    OtherStatus,
    /// The message is no step of this join; nothing changed.
    NotAMember,
}

/// Where a join stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinStatus {
    /// Steps are missing.
    Pending,
    /// All steps are in, and none failed.
    Completed,
    /// All steps are in, and at least one failed.
    Failed,
    /// Cancelled by hand.
    Cancelled,
}

impl JoinStatus {
    fn from_code(code: i64) -> Self {
        match code {
            1 => Self::Completed,
            2 => Self::Failed,
            3 => Self::Cancelled,
            _ => Self::Pending,
        }
    }
}

/// A join as the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Join {
    /// Its identifier.
    pub id: JoinId,
    /// What it belongs to.
    pub grouping_key: Option<String>,
    /// How many steps it waits for.
    pub expected_steps: u32,
    /// How many were acked.
    pub completed_steps: u32,
    /// How many failed for good.
    pub failed_steps: u32,
    /// Where it stands.
    pub status: JoinStatus,
    /// When it was started.
    pub created_at: SystemTime,
    /// When a counter or the status last changed.
    pub last_updated_at: SystemTime,
    /// What was kept with it.
    pub metadata: Option<String>,
}

impl Join {
    /// Whether all steps are in.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.completed_steps + self.failed_steps == self.expected_steps
    }

    fn read(mut row: Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.uuid()?.into(),
            grouping_key: row.optional_text()?,
            expected_steps: row.small()?,
            completed_steps: row.small()?,
            failed_steps: row.small()?,
            status: JoinStatus::from_code(row.int()?),
            created_at: time(row.int()?),
            last_updated_at: time(row.int()?),
            metadata: row.optional_text()?,
        })
    }
}

/// A step of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JoinMember {
    /// The message.
    pub message_id: MessageId,
    /// Whether it has been counted, and as what.
    pub status: StepStatus,
    /// When it was attached.
    pub created_at: SystemTime,
}

impl JoinMember {
    fn read(mut row: Row) -> Result<Self, Error> {
        let message_id = row.uuid()?.into();
        let status = match row.int()? {
            1 => StepStatus::Completed,
            2 => StepStatus::Failed,
            _ => StepStatus::Pending,
        };
        Ok(Self {
            message_id,
            status,
            created_at: time(row.int()?),
        })
    }
}

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepStatus {
    /// Its message is neither acked nor failed.
    Pending,
    /// Its message was acked.
    Completed,
    /// Its message failed for good.
    Failed,
}

/// A join that an operation has just finished.
pub(crate) struct Finished {
    pub(crate) id: Uuid,
    pub(crate) status: JoinStatus,
    pub(crate) completed: i64,
    pub(crate) failed: i64,
    pub(crate) expected: i64,
}

/// Reads `join_id, status, completed, failed, expected`; `None` for a join that is still pending.
pub(crate) fn finished(row: &mut Row) -> Result<Option<Finished>, Error> {
    let (id, status) = (row.uuid()?, JoinStatus::from_code(row.int()?));
    let (completed, failed, expected) = (row.int()?, row.int()?, row.int()?);
    Ok((status != JoinStatus::Pending).then_some(Finished {
        id,
        status,
        completed,
        failed,
        expected,
    }))
}

/// What it means when a statement finds no join to refer to.
pub(crate) const NO_JOIN: ErrorKind = ErrorKind::NotFound { what: "join" };

fn unknown_join(join: JoinId) -> Error {
    NO_JOIN.with(format!("no join has the id {join}"))
}

fn page(limit: u32) -> Result<Value, Error> {
    if !(1..=10_000).contains(&limit) {
        return Err(ErrorKind::OutOfRange { param: "limit" }.with("expected 1 to 10000"));
    }
    Ok(i64::from(limit).into())
}
