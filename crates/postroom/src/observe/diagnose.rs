//! Why a store is slow, or why messages do not move: looks for the causes that are known, and says what
//! to do about each.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::message::time;
use crate::observe::held::Holder;
use crate::room::Postroom;
use crate::sql::{Dialect, Queue, Row, Value};
use crate::store::duration_micros;

/// The oldest SQLite without a bug that can corrupt a file in write-ahead mode.
const OLDEST_SQLITE: [u32; 3] = [3, 51, 3];

/// How far the clocks of this machine and of the database may differ.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// From how many dead rows on a table is looked at, if it has four times as many dead as live ones.
const DEAD_ROWS: u64 = 20_000;

/// More than so many findings of one cause tell nothing new.
const MOST_OF_A_CAUSE: usize = 10;

impl Postroom {
    /// What is wrong with this store, worst first; nothing when it is well. `known_topics` are the topics
    /// that somebody handles: ready messages of others are work that nobody does. Empty when you do not
    /// know them.
    ///
    /// It looks at every unfinished message, and never at the archive.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # use postroom::{Cause, Message, Postroom};
    /// # let room = Postroom::connect("sqlite::memory:").await?;
    /// # room.deploy().await?;
    /// room.outbox().enqueue(&Message::new("order.creatd", "7")).await?;
    ///
    /// for finding in room.diagnose(&["order.created"]).await? {
    ///     assert_eq!(finding.cause, Cause::UnhandledWork);
    ///     println!("{} {}", finding.summary, finding.advice);
    /// }
    /// # Ok::<(), postroom::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the database fails. A schema that is missing or was changed is no error but a finding.
    pub async fn diagnose(&self, known_topics: &[&str]) -> Result<Vec<Finding>, Error> {
        let diagnosis = Diagnosis::default().topics(known_topics.iter().copied());
        self.diagnose_with(&diagnosis).await
    }

    /// What is wrong with this store, by the caller's idea of how long is too long.
    ///
    /// # Errors
    /// As [`Postroom::diagnose`], and `OutOfRange` when the patience is beyond a year.
    pub async fn diagnose_with(&self, diagnosis: &Diagnosis) -> Result<Vec<Finding>, Error> {
        duration_micros("patience", diagnosis.patience)?;
        let schema = self.schema_findings().await?;
        if schema.iter().any(|finding| finding.cause == Cause::Schema) {
            // Without its tables, a store has nothing else to look at.
            return Ok(schema);
        }
        let mut findings = schema;
        findings.extend(self.clock_findings().await?);
        findings.extend(self.snapshot_findings(diagnosis).await?);
        for queue in [Queue::Outbox, Queue::Inbox] {
            findings.extend(self.unhandled_findings(queue, diagnosis).await?);
            findings.extend(self.lease_findings(queue, diagnosis).await?);
        }
        findings.extend(self.table_findings().await?);
        findings.extend(self.file_findings(diagnosis).await?);
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Ok(findings)
    }

    async fn schema_findings(&self) -> Result<Vec<Finding>, Error> {
        let (plan, dialect) = (self.plan()?, self.dialect());
        let applied = self.store.db.applied(plan.clone()).await?;
        if let Err(error) = plan.verify(applied.as_deref()) {
            return schema_finding(error);
        }
        let indexes = plan.indexes(dialect, &self.store.names);
        let relations = plan.relations(dialect, &self.store.names);
        let values = vec![Value::Texts(relations.into_iter().map(Some).collect())];
        let mut findings = Vec::new();
        for mut row in self
            .asked(&self.store.catalog.invalid_indexes, values)
            .await?
        {
            let (name, invalid) = (row.text()?, row.int()? == 1);
            findings.push(if indexes.contains(&name) {
                missing_index(&name, invalid)
            } else {
                Finding {
                    cause: Cause::Schema,
                    severity: Severity::Critical,
                    summary: format!("The table {name} is missing: it was removed by hand."),
                    advice: "Restore it as `postroom schema print` shows it, or from a backup."
                        .to_owned(),
                }
            });
        }
        if findings.is_empty() {
            let prepared = self.store.db.prepare(self.store.catalog.scripts()).await;
            return prepared.map_or_else(schema_finding, |()| Ok(Vec::new()));
        }
        Ok(findings)
    }

    /// SQLite's clock is this machine's.
    async fn clock_findings(&self) -> Result<Option<Finding>, Error> {
        if self.dialect() == Dialect::Sqlite {
            return Ok(None);
        }
        let before = SystemTime::now();
        let database = time(self.store.clock().await?);
        Ok(clock_difference(before, database, SystemTime::now()))
    }

    async fn snapshot_findings(&self, diagnosis: &Diagnosis) -> Result<Vec<Finding>, Error> {
        let Some(script) = &self.store.catalog.held_snapshots else {
            return Ok(Vec::new());
        };
        let rows = match self.asked(script, Vec::new()).await {
            // Not everybody may see what others do.
            Err(error) if is_denied(&error) => Vec::new(),
            rows => rows?,
        };
        let mut findings = Vec::new();
        for row in rows {
            let holder = Holder::read(row)?;
            findings.extend(holder.finding(self.dialect(), diagnosis.patience));
        }
        findings.truncate(MOST_OF_A_CAUSE);
        Ok(findings)
    }

    async fn unhandled_findings(
        &self,
        queue: Queue,
        diagnosis: &Diagnosis,
    ) -> Result<Vec<Finding>, Error> {
        let (_, sql, _) = self.store.queue(queue);
        let mut findings = Vec::new();
        for row in self.asked(&sql.unattended, Vec::new()).await? {
            let topic = Unattended::read(row)?;
            // Whoever dispatches the outbox handles wait messages too, without being asked.
            let waits_for_join =
                queue == Queue::Outbox && topic.topic == self.store.join_wait_topic;
            findings.extend(unhandled(&topic, queue, waits_for_join, diagnosis));
        }
        findings.truncate(MOST_OF_A_CAUSE);
        Ok(findings)
    }

    async fn lease_findings(
        &self,
        queue: Queue,
        diagnosis: &Diagnosis,
    ) -> Result<Option<Finding>, Error> {
        let (name, sql, _) = self.store.queue(queue);
        let patience = duration_micros("patience", diagnosis.patience)?;
        let mut rows = self
            .asked(&sql.overdue_leases, vec![patience.into()])
            .await?;
        let mut row = rows
            .pop()
            .ok_or_else(|| ErrorKind::Schema.with("a count returned no row"))?;
        let (count, oldest) = (row.count()?, duration(row.optional_int()?));
        Ok((count > 0).then(|| Finding {
            cause: Cause::ExpiredLeases,
            severity: Severity::Critical,
            summary: format!(
                "{} of the {name} {} under a lease that has expired, the oldest {} ago, and nobody has taken over.",
                messages(count),
                are(count),
                spoken(oldest)
            ),
            advice: "Start a dispatcher, or look why the running ones do not claim: their logs name failed polls."
                .to_owned(),
        }))
    }

    async fn table_findings(&self) -> Result<Vec<Finding>, Error> {
        let Some(script) = &self.store.catalog.table_growth else {
            return Ok(Vec::new());
        };
        let tables = self.plan()?.tables(self.dialect());
        let values = vec![Value::Texts(tables.into_iter().map(Some).collect())];
        let mut findings = Vec::new();
        for mut row in self.asked(script, values).await? {
            let (table, live, dead) = (row.text()?, row.count()?, row.count()?);
            findings.extend(growing_table(&table, live, dead, row.optional_int()?));
        }
        Ok(findings)
    }

    async fn file_findings(&self, diagnosis: &Diagnosis) -> Result<Vec<Finding>, Error> {
        let Some(script) = &self.store.catalog.file_state else {
            return Ok(Vec::new());
        };
        let rows = self.asked(script, Vec::new()).await?;
        let mut findings = Vec::new();
        for row in rows {
            let file = File::read(row)?;
            findings.extend(old_sqlite(&file.version));
            findings.extend(no_write_ahead(&file.journal_mode));
            findings.extend(free_pages(&file, diagnosis.growth));
            findings.extend(long_log(file.log_bytes(), diagnosis.growth));
        }
        Ok(findings)
    }

    async fn asked(
        &self,
        script: &std::sync::Arc<crate::sql::Script>,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, Error> {
        self.store
            .read("diagnose", "store", script.call(values))
            .await
    }
}

/// What a diagnosis goes by. The defaults suit most stores.
///
/// ```
/// use std::time::Duration;
/// use postroom::Diagnosis;
///
/// let diagnosis = Diagnosis::default()
///     .topics(["order.created", "order.paid"])
///     .patience(Duration::from_secs(300));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    topics: Vec<String>,
    patience: Duration,
    growth: u64,
}

/// No topics are known, a minute is too long, and 256 MiB are too much.
impl Default for Diagnosis {
    fn default() -> Self {
        Self {
            topics: Vec::new(),
            patience: Duration::from_secs(60),
            growth: 256 * 1024 * 1024,
        }
    }
}

impl Diagnosis {
    /// The topics that somebody handles. Messages of others are work that nobody does.
    #[must_use]
    pub fn topics<T: Into<String>>(mut self, topics: impl IntoIterator<Item = T>) -> Self {
        self.topics = topics.into_iter().map(Into::into).collect();
        self
    }

    /// For how long a transaction may be open, and a lease be over, before it is worth a word. Messages may
    /// be ready, and never claimed, for five times as long.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// From how many bytes on the free space in an SQLite file, or its write-ahead log, is worth a word.
    #[must_use]
    pub fn growth(mut self, bytes: u64) -> Self {
        self.growth = bytes;
        self
    }
}

/// Something that is wrong with a store. It serializes as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What it is.
    pub cause: Cause,
    /// How bad it is.
    pub severity: Severity,
    /// A sentence with numbers. It holds no payload, no secret and no query.
    pub summary: String,
    /// A sentence that says what to do.
    pub advice: String,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// PostgreSQL, MySQL, SQL Server: somebody keeps a transaction open or an old snapshot, so that dead rows cannot
    /// be removed.
    HeldSnapshot,
    /// Messages are ready and nobody handles their topic.
    UnhandledWork,
    /// Leases are over and nobody has taken the messages over.
    ExpiredLeases,
    /// The clocks of this machine and of the database differ.
    ClockDifference,
    /// An index is missing, or is not used because it was not built to its end.
    MissingIndex,
    /// SQLite is too old, or not in write-ahead mode.
    OldSqlite,
    /// A table or a file keeps far more than its messages need.
    GrowingTable,
    /// The tables are missing, older or newer than this library, or were changed by hand.
    Schema,
}

impl Cause {
    /// Its name, as in JSON: `held_snapshot`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HeldSnapshot => "held_snapshot",
            Self::UnhandledWork => "unhandled_work",
            Self::ExpiredLeases => "expired_leases",
            Self::ClockDifference => "clock_difference",
            Self::MissingIndex => "missing_index",
            Self::OldSqlite => "old_sqlite",
            Self::GrowingTable => "growing_table",
            Self::Schema => "schema",
        }
    }
}

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It works, but will get worse.
    Warning,
    /// Messages do not move, or may be in danger.
    Critical,
}

impl Severity {
    /// Its name, as in JSON: `warning`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// A schema that is not right is what was looked for; anything else is a failure.
fn schema_finding(error: Error) -> Result<Vec<Finding>, Error> {
    if error.kind() != ErrorKind::Schema {
        return Err(error);
    }
    Ok(vec![Finding {
        cause: Cause::Schema,
        severity: Severity::Critical,
        summary: format!("The tables are not those of this library: {error}."),
        advice: "Run `postroom schema deploy`, or `postroom schema verify` for more.".to_owned(),
    }])
}

/// Whether the user of the connection lacks a right to look at the server: MySQL's PROCESS, or SQL Server's to view
/// its state.
fn is_denied(error: &Error) -> bool {
    matches!(
        error.code(),
        Some("42000 1227" | "MSSQLSERVER_262" | "MSSQLSERVER_297" | "MSSQLSERVER_300")
    )
}

fn missing_index(name: &str, invalid: bool) -> Finding {
    let (summary, advice) = if invalid {
        (
            format!(
                "The index {name} is invalid: it was not built to its end, and no query uses it."
            ),
            format!("Build it anew with `REINDEX INDEX CONCURRENTLY {name}`."),
        )
    } else {
        (
            format!("The index {name} is missing: queries that need it look at every row."),
            "Create it as `postroom schema print` shows it.".to_owned(),
        )
    };
    Finding {
        cause: Cause::MissingIndex,
        severity: Severity::Critical,
        summary,
        advice,
    }
}

/// The database's time was read between `before` and `after`.
fn clock_difference(
    before: SystemTime,
    database: SystemTime,
    after: SystemTime,
) -> Option<Finding> {
    let behind = before.duration_since(database).unwrap_or_default();
    let ahead = database.duration_since(after).unwrap_or_default();
    let difference = behind.max(ahead);
    (difference > CLOCK_TOLERANCE).then(|| Finding {
        cause: Cause::ClockDifference,
        severity: Severity::Warning,
        summary: format!(
            "The database's clock is {:.1} seconds {} this machine's.",
            difference.as_secs_f64(),
            if behind > ahead { "behind" } else { "ahead of" }
        ),
        advice: "Synchronize both clocks (NTP): leases and due times go by the database's, due times that you compute \
                 here by this machine's."
            .to_owned(),
    })
}

/// Messages of a topic that may have nobody.
struct Unattended {
    topic: String,
    /// Ready, or handed back for later.
    open: u64,
    /// Ready and never claimed.
    untouched: u64,
    untouched_for: Duration,
    in_flight: u64,
}

impl Unattended {
    /// Reads the columns of `unattended.sql`.
    fn read(mut row: Row) -> Result<Self, Error> {
        Ok(Self {
            topic: row.text()?,
            open: row.count()?,
            untouched: row.count()?,
            untouched_for: duration(row.optional_int()?),
            in_flight: row.count()?,
        })
    }
}

fn unhandled(
    found: &Unattended,
    queue: Queue,
    waits_for_join: bool,
    diagnosis: &Diagnosis,
) -> Option<Finding> {
    let Unattended { topic, open, .. } = found;
    let known = diagnosis.topics.is_empty()
        || waits_for_join
        || diagnosis.topics.iter().any(|known| known == topic);
    let queue = queue.name();
    if !known && *open > 0 {
        return Some(Finding {
            cause: Cause::UnhandledWork,
            severity: Severity::Warning,
            summary: format!(
                "{} of the topic `{topic}` {} waiting in the {queue}, and nobody handles that topic.",
                messages(*open),
                are(*open)
            ),
            advice: "Deploy a handler or a target for it, or correct the topic where these messages are enqueued."
                .to_owned(),
        });
    }
    let forgotten = found.untouched > 0
        && found.in_flight == 0
        && found.untouched_for >= diagnosis.patience.saturating_mul(5);
    forgotten.then(|| Finding {
        cause: Cause::UnhandledWork,
        severity: Severity::Critical,
        summary: format!(
            "{} of the topic `{topic}` {} ready in the {queue} and never claimed, the oldest for {}.",
            messages(found.untouched),
            are(found.untouched),
            spoken(found.untouched_for)
        ),
        advice: format!("Start a dispatcher that handles this topic of the {queue}, or give the running ones more room."),
    })
}

fn growing_table(table: &str, live: u64, dead: u64, unvacuumed: Option<i64>) -> Option<Finding> {
    if dead < DEAD_ROWS || dead / 4 < live {
        return None;
    }
    let vacuum = unvacuumed.map_or_else(
        || "no vacuum has ever come".to_owned(),
        |micros| {
            format!(
                "the last vacuum came {} ago",
                spoken(duration(Some(micros)))
            )
        },
    );
    Some(Finding {
        cause: Cause::GrowingTable,
        severity: Severity::Warning,
        summary: format!("The table {table} has {dead} dead rows and {live} live ones; {vacuum}."),
        advice: format!(
            "See that autovacuum is on and that nobody holds a snapshot, then run `VACUUM` on {table}."
        ),
    })
}

/// An SQLite file.
struct File {
    version: String,
    journal_mode: String,
    pages: u64,
    page_bytes: u64,
    free_pages: u64,
    path: String,
}

impl File {
    /// Reads the columns of `file_state.sql`.
    fn read(mut row: Row) -> Result<Self, Error> {
        Ok(Self {
            version: row.text()?,
            journal_mode: row.text()?,
            pages: row.count()?,
            page_bytes: row.count()?,
            free_pages: row.count()?,
            path: row.text()?,
        })
    }

    /// The size of the write-ahead log beside it.
    fn log_bytes(&self) -> u64 {
        let log = format!("{}-wal", self.path);
        std::fs::metadata(log).map_or(0, |found| found.len())
    }
}

fn old_sqlite(version: &str) -> Option<Finding> {
    let mut numbers = version
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let found = [(); 3].map(|()| numbers.next().unwrap_or(0));
    (found < OLDEST_SQLITE).then(|| Finding {
        cause: Cause::OldSqlite,
        severity: Severity::Critical,
        summary: format!(
            "SQLite is {version}; before 3.51.3, several processes can corrupt a file."
        ),
        advice: "Build with the SQLite that postroom brings along, or with 3.51.3 or later."
            .to_owned(),
    })
}

/// A database in memory has no file to write ahead of.
fn no_write_ahead(journal_mode: &str) -> Option<Finding> {
    (!["wal", "memory"].contains(&journal_mode)).then(|| Finding {
        cause: Cause::OldSqlite,
        severity: Severity::Warning,
        summary: format!("The file's journal mode is `{journal_mode}`, so readers and the writer hold each other up."),
        advice: "Put the file on a local disk and run `PRAGMA journal_mode = WAL` while nobody else has it open."
            .to_owned(),
    })
}

fn free_pages(file: &File, growth: u64) -> Option<Finding> {
    let free = file.free_pages.saturating_mul(file.page_bytes);
    let all = file.pages.saturating_mul(file.page_bytes);
    (free >= growth && free > all / 2).then(|| Finding {
        cause: Cause::GrowingTable,
        severity: Severity::Warning,
        summary: format!("Of the file's {}, {} are free space.", megabytes(all), megabytes(free)),
        advice: "Clean up more often so that it does not grow again; `VACUUM` gives the space back, and nobody can \
                 write meanwhile."
            .to_owned(),
    })
}

fn long_log(bytes: u64, growth: u64) -> Option<Finding> {
    (bytes >= growth).then(|| Finding {
        cause: Cause::GrowingTable,
        severity: Severity::Warning,
        summary: format!(
            "The write-ahead log has grown to {}: a connection has been reading for long, or still is.",
            megabytes(bytes)
        ),
        advice: "Find the program that keeps a read transaction open and let it end; then run \
                 `PRAGMA wal_checkpoint(TRUNCATE)`."
            .to_owned(),
    })
}

pub(super) fn duration(micros: Option<i64>) -> Duration {
    Duration::from_micros(
        micros
            .and_then(|micros| u64::try_from(micros).ok())
            .unwrap_or(0),
    )
}

/// A time in the largest unit of which there are two or more.
pub(super) fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..2 => format!("{:.1} seconds", time.as_secs_f64()),
        2..120 => format!("{seconds} seconds"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{} MiB", bytes / (1024 * 1024))
}

fn messages(count: u64) -> String {
    if count == 1 {
        "1 message".to_owned()
    } else {
        format!("{count} messages")
    }
}

fn are(count: u64) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn seconds(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn clocks_may_differ_by_as_much_as_the_question_took_and_a_second() {
        assert_eq!(clock_difference(seconds(10), seconds(9), seconds(10)), None);
        assert_eq!(
            clock_difference(seconds(10), seconds(21), seconds(20)),
            None
        );
        let behind = clock_difference(seconds(10), seconds(5), seconds(11)).expect("a finding");
        assert_eq!(behind.cause, Cause::ClockDifference);
        assert!(
            behind.summary.contains("5.0 seconds behind"),
            "{}",
            behind.summary
        );
        let ahead = clock_difference(seconds(10), seconds(20), seconds(11)).expect("a finding");
        assert!(
            ahead.summary.contains("9.0 seconds ahead"),
            "{}",
            ahead.summary
        );
    }

    /// No test can run on an SQLite that is too old: the store does not open it.
    #[test]
    fn an_old_sqlite_is_named() {
        for version in ["3.51.2", "3.9.9", "2.99.99", "3"] {
            let finding = old_sqlite(version).expect(version);
            assert_eq!(finding.cause, Cause::OldSqlite);
            assert!(finding.summary.contains(version), "{}", finding.summary);
        }
        for version in ["3.51.3", "3.52.0", "4.0"] {
            assert_eq!(old_sqlite(version), None, "{version}");
        }
    }

    /// A file that a store has open is in write-ahead mode, except where the file system cannot do it.
    #[test]
    fn a_file_without_a_write_ahead_log_is_named() {
        assert_eq!(no_write_ahead("wal"), None);
        assert_eq!(no_write_ahead("memory"), None);
        let finding = no_write_ahead("delete").expect("a finding");
        assert_eq!(finding.cause, Cause::OldSqlite);
        assert!(finding.summary.contains("delete"), "{}", finding.summary);
    }

    #[test]
    fn times_are_told_in_the_unit_that_suits_them() {
        for (secs, expected) in [
            (0, "0.0 seconds"),
            (90, "90 seconds"),
            (600, "10 minutes"),
            (7_200, "2 hours"),
            (864_000, "10 days"),
        ] {
            assert_eq!(spoken(Duration::from_secs(secs)), expected);
        }
    }
}
