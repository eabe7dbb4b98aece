//! Every script of a store, filled in and parsed once, when the store is opened.

use std::sync::Arc;

use crate::error::Error;
use crate::sql::{Dialect, Identifier, Names, Part, Script, mssql, mysql, postgres, sqlite};

/// The scripts of a store.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) outbox: QueueSql,
    pub(crate) inbox: QueueSql,
    /// The inbox's work queue, settled by (source, message id) or the bare id instead of by work item.
    pub(crate) inbox_by_key: QueueSql,
    pub(crate) enqueue: Arc<Script>,
    /// PostgreSQL and SQL Server: any number of messages in one statement.
    pub(crate) enqueue_many: Option<Arc<Script>>,
    /// PostgreSQL and SQL Server: messages and their memberships in one statement.
    pub(crate) enqueue_joined: Option<Arc<Script>>,
    /// SQLite and MySQL: one membership, after its message.
    pub(crate) enqueue_member: Option<Arc<Script>>,
    pub(crate) enqueue_wait: Arc<Script>,
    pub(crate) enqueue_once: Arc<Script>,
    pub(crate) forget_keys: Arc<Script>,
    pub(crate) already_processed: Arc<Script>,
    pub(crate) inbox_enqueue: Arc<Script>,
    pub(crate) inbox_mark: Arc<Script>,
    pub(crate) inbox_get: Arc<Script>,
    pub(crate) inbox_forget: Arc<Script>,
    pub(crate) join: JoinSql,
    pub(crate) audit: AuditSql,
    pub(crate) clock: Arc<Script>,
    pub(crate) totals: Arc<Script>,
    pub(crate) invalid_indexes: Arc<Script>,
    /// PostgreSQL only: who keeps dead rows from being removed.
    pub(crate) held_snapshots: Option<Arc<Script>>,
    /// PostgreSQL only: live and dead rows of tables.
    pub(crate) table_growth: Option<Arc<Script>>,
    /// SQLite only: version, journal and size.
    pub(crate) file_state: Option<Arc<Script>>,
}

/// The scripts of one work queue. The same files serve the outbox and the inbox.
#[derive(Debug)]
pub(crate) struct QueueSql {
    pub(crate) claim: Arc<Script>,
    pub(crate) ack: Arc<Script>,
    pub(crate) abandon: Arc<Script>,
    pub(crate) fail: Arc<Script>,
    pub(crate) renew: Arc<Script>,
    pub(crate) release: Arc<Script>,
    /// PostgreSQL and SQL Server: a dispatcher's round trip in one statement.
    pub(crate) settle_and_claim: Option<Arc<Script>>,
    /// PostgreSQL only: wakes workers of other processes.
    pub(crate) announce: Option<Arc<Script>>,
    /// PostgreSQL and SQL Server: an ack and what follows from it in one statement.
    pub(crate) ack_and_enqueue: Option<Arc<Script>>,
    /// SQLite and MySQL: stops a transaction that has lost its lease.
    pub(crate) held: Option<Arc<Script>>,
    pub(crate) reap: Arc<Script>,
    pub(crate) replay: Arc<Script>,
    pub(crate) purge: Arc<Script>,
    pub(crate) cleanup: Arc<Script>,
    pub(crate) maintain: Arc<Script>,
    pub(crate) get: Arc<Script>,
    pub(crate) list: Arc<Script>,
    pub(crate) list_newest: Arc<Script>,
    pub(crate) list_count: Arc<Script>,
    pub(crate) match_dead: Arc<Script>,
    pub(crate) count_dead: Arc<Script>,
    pub(crate) count: Arc<Script>,
    pub(crate) stats: Arc<Script>,
    pub(crate) topics: Arc<Script>,
    pub(crate) unattended: Arc<Script>,
    pub(crate) overdue_leases: Arc<Script>,
}

/// The scripts of joins.
#[derive(Debug)]
pub(crate) struct JoinSql {
    pub(crate) start: Arc<Script>,
    pub(crate) attach: Arc<Script>,
    pub(crate) report: Arc<Script>,
    pub(crate) reconcile: Arc<Script>,
    pub(crate) cancel: Arc<Script>,
    pub(crate) get: Arc<Script>,
    pub(crate) list: Arc<Script>,
    pub(crate) recent: Arc<Script>,
    pub(crate) members: Arc<Script>,
    pub(crate) cleanup: Arc<Script>,
}

/// The scripts of the audit trail.
#[derive(Debug)]
pub(crate) struct AuditSql {
    pub(crate) record: Arc<Script>,
    pub(crate) list: Arc<Script>,
    pub(crate) cleanup: Arc<Script>,
}

/// How the statements of a queue find the rows they are to settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    WorkItem,
    Key,
}

impl Catalog {
    pub(crate) fn new(dialect: Dialect, names: &Names) -> Self {
        let writer = Writer { dialect, names };
        let outbox = |text| writer.script(&names.outbox, By::WorkItem, text);
        let files = writer.files();
        Self {
            outbox: writer.queue(&names.outbox, By::WorkItem),
            inbox: writer.queue(&names.inbox, By::WorkItem),
            inbox_by_key: writer.queue(&names.inbox, By::Key),
            enqueue: outbox(files.enqueue),
            enqueue_many: files.enqueue_many.map(outbox),
            enqueue_joined: files.enqueue_joined.map(outbox),
            enqueue_member: files.enqueue_member.map(outbox),
            enqueue_wait: outbox(files.enqueue_wait),
            enqueue_once: outbox(files.enqueue_once),
            forget_keys: outbox(files.forget_keys),
            already_processed: outbox(files.inbox_already_processed),
            inbox_enqueue: outbox(files.inbox_enqueue),
            inbox_mark: outbox(files.inbox_mark),
            inbox_get: outbox(files.inbox_get),
            inbox_forget: outbox(files.inbox_forget),
            join: JoinSql {
                start: outbox(files.join_start),
                attach: outbox(files.join_attach),
                report: outbox(files.join_report),
                reconcile: outbox(files.join_reconcile),
                cancel: outbox(files.join_cancel),
                get: outbox(files.join_get),
                list: outbox(files.join_list),
                recent: outbox(files.join_recent),
                members: outbox(files.join_members),
                cleanup: outbox(files.join_cleanup),
            },
            audit: AuditSql {
                record: outbox(files.audit_record),
                list: outbox(files.audit_list),
                cleanup: outbox(files.audit_cleanup),
            },
            clock: outbox(files.clock),
            totals: outbox(files.totals),
            invalid_indexes: outbox(files.invalid_indexes),
            held_snapshots: files.held_snapshots.map(outbox),
            table_growth: files.table_growth.map(outbox),
            file_state: files.file_state.map(outbox),
        }
    }
}

impl Catalog {
    /// Every script, for a check that the schema has what they need.
    pub(crate) fn scripts(&self) -> Vec<Arc<Script>> {
        let join = &self.join;
        let queues = [&self.outbox, &self.inbox, &self.inbox_by_key];
        let optional = [
            &self.enqueue_many,
            &self.enqueue_joined,
            &self.enqueue_member,
            &self.held_snapshots,
            &self.table_growth,
            &self.file_state,
        ];
        let single = [
            &self.enqueue,
            &self.enqueue_wait,
            &self.enqueue_once,
            &self.forget_keys,
            &self.already_processed,
            &self.inbox_enqueue,
            &self.inbox_mark,
            &self.inbox_get,
            &self.inbox_forget,
            &join.start,
            &join.attach,
            &join.report,
            &join.reconcile,
            &join.cancel,
            &join.get,
            &join.list,
            &join.recent,
            &join.members,
            &join.cleanup,
            &self.audit.record,
            &self.audit.list,
            &self.audit.cleanup,
            &self.clock,
            &self.totals,
            &self.invalid_indexes,
        ];
        let queues = queues.into_iter().flat_map(QueueSql::scripts);
        single
            .into_iter()
            .chain(optional.into_iter().flatten())
            .chain(queues)
            .map(Arc::clone)
            .collect()
    }
}

impl QueueSql {
    fn scripts(&self) -> impl Iterator<Item = &Arc<Script>> {
        let optional = [
            &self.settle_and_claim,
            &self.announce,
            &self.ack_and_enqueue,
            &self.held,
        ];
        let all = [
            &self.claim,
            &self.ack,
            &self.abandon,
            &self.fail,
            &self.renew,
            &self.release,
            &self.reap,
            &self.replay,
            &self.purge,
            &self.cleanup,
            &self.maintain,
            &self.get,
            &self.list,
            &self.list_newest,
            &self.list_count,
            &self.match_dead,
            &self.count_dead,
            &self.count,
            &self.stats,
            &self.topics,
            &self.unattended,
            &self.overdue_leases,
        ];
        all.into_iter().chain(optional.into_iter().flatten())
    }
}

/// The statements of one work-queue operation, for people who work a queue from another language.
///
/// On PostgreSQL and SQL Server that is a call of one of the deployed functions or procedures; on SQLite one
/// statement or several, to be run in one transaction that began with `BEGIN IMMEDIATE`; on MySQL the same in
/// one transaction under READ COMMITTED.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// Which queue and what it does, such as `outbox claim`.
    pub name: String,
    /// What to run, in order.
    pub statements: Vec<OperationStatement>,
}

/// One statement of an [`Operation`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationStatement {
    /// The text.
    pub sql: String,
    /// Which of the operation's parameters are its own, counted from 1; the comment at the top of the
    /// operation's file says what they mean. Empty on PostgreSQL, where it takes all of them.
    pub parameters: Vec<usize>,
    /// Run it only if the last statement without this mark changed a row. To run it anyway is only
    /// slower.
    pub if_changed: bool,
}

/// The operations of both queues.
pub(crate) fn operations(dialect: Dialect, names: &Names) -> Vec<Operation> {
    let catalog = Catalog::new(dialect, names);
    let queue = |name: &str, sql: &QueueSql| {
        [
            ("claim", &sql.claim),
            ("ack", &sql.ack),
            ("abandon", &sql.abandon),
            ("fail", &sql.fail),
            ("renew", &sql.renew),
            ("release", &sql.release),
            ("reap", &sql.reap),
        ]
        .into_iter()
        .map(|(operation, script)| Operation {
            name: format!("{name} {operation}"),
            statements: script.parts.iter().map(OperationStatement::new).collect(),
        })
        .collect::<Vec<_>>()
    };
    let mut operations = queue("outbox", &catalog.outbox);
    operations.extend(queue("inbox", &catalog.inbox));
    operations
}

impl OperationStatement {
    fn new(part: &Part) -> Self {
        Self {
            sql: part.sql.to_string(),
            parameters: part.values.iter().map(|index| index + 1).collect(),
            if_changed: part.if_changed,
        }
    }
}

/// The files of a dialect: those that every dialect has, each under its own name, and what is particular.
/// That may be the migrations, where a dialect has come later and begins with columns that others were given.
macro_rules! files_with {
    (migrations: $migrations:expr, $($particular:ident: $value:expr),+ $(,)?) => {
        Files {
            enqueue: include_str!("enqueue.sql"),
            enqueue_wait: include_str!("enqueue_wait.sql"),
            enqueue_once: include_str!("enqueue_once.sql"),
            forget_keys: include_str!("forget_keys.sql"),
            claim: include_str!("claim.sql"),
            ack: include_str!("ack.sql"),
            abandon: include_str!("abandon.sql"),
            fail: include_str!("fail.sql"),
            renew: include_str!("renew.sql"),
            release: include_str!("release.sql"),
            reap: include_str!("reap.sql"),
            replay: include_str!("replay.sql"),
            purge: include_str!("purge.sql"),
            cleanup: include_str!("cleanup.sql"),
            maintain: include_str!("maintain.sql"),
            get: include_str!("get.sql"),
            list: include_str!("list.sql"),
            list_count: include_str!("list_count.sql"),
            match_dead: include_str!("match_dead.sql"),
            count_dead: include_str!("count_dead.sql"),
            count: include_str!("count.sql"),
            inbox_count: include_str!("inbox_count.sql"),
            stats: include_str!("stats.sql"),
            topics: include_str!("topics.sql"),
            unattended: include_str!("unattended.sql"),
            overdue_leases: include_str!("overdue_leases.sql"),
            inbox_already_processed: include_str!("inbox_already_processed.sql"),
            inbox_enqueue: include_str!("inbox_enqueue.sql"),
            inbox_mark: include_str!("inbox_mark.sql"),
            inbox_get: include_str!("inbox_get.sql"),
            inbox_forget: include_str!("inbox_forget.sql"),
            join_start: include_str!("join_start.sql"),
            join_attach: include_str!("join_attach.sql"),
            join_report: include_str!("join_report.sql"),
            join_reconcile: include_str!("join_reconcile.sql"),
            join_cancel: include_str!("join_cancel.sql"),
            join_get: include_str!("join_get.sql"),
            join_list: include_str!("join_list.sql"),
            join_recent: include_str!("join_recent.sql"),
            join_members: include_str!("join_members.sql"),
            join_cleanup: include_str!("join_cleanup.sql"),
            audit_record: include_str!("audit_record.sql"),
            audit_list: include_str!("audit_list.sql"),
            audit_cleanup: include_str!("audit_cleanup.sql"),
            clock: include_str!("clock.sql"),
            totals: include_str!("totals.sql"),
            invalid_indexes: include_str!("invalid_indexes.sql"),
            migrations: $migrations,
            $($particular: $value),+
        }
    };
    ($($particular:ident: $value:expr),+ $(,)?) => {
        files_with!(
            migrations: &[
                (1, "outbox", include_str!("migrations/0001_outbox.sql")),
                (2, "inbox", include_str!("migrations/0002_inbox.sql")),
                (3, "joins", include_str!("migrations/0003_joins.sql")),
                (4, "headers", include_str!("migrations/0004_headers.sql")),
                (
                    5,
                    "operations",
                    include_str!("migrations/0005_operations.sql"),
                ),
            ],
            $($particular: $value),+
        )
    };
}
pub(super) use files_with;

/// What a message takes along from one table to another.
pub(super) const OUTBOX_COLUMNS: &str = "id, message_id, created_at, due_time, last_attempt_at, attempt_count, deferral_count, \
     delivery_count, topic, correlation_id, last_error, payload, headers";
pub(super) const INBOX_COLUMNS: &str = "id, source, message_id, created_at, due_time, last_attempt_at, attempt_count, \
     deferral_count, delivery_count, topic, correlation_id, last_error, payload, headers";

/// The columns of a message in the order in which `message.rs` reads them, where a queue is `q`.
pub(super) const OUTBOX_RETURNED: &str = "q.id, q.message_id, q.topic, q.payload, q.headers, q.correlation_id, q.created_at, \
     q.due_time, q.next_attempt_at, q.locked_until, q.owner_token, q.attempt_count, q.deferral_count, \
     q.delivery_count, q.last_attempt_at, q.last_error";
pub(super) const INBOX_RETURNED: &str = "q.id, q.source, q.message_id, q.topic, q.payload, q.headers, q.correlation_id, \
     q.created_at, q.due_time, q.next_attempt_at, q.locked_until, q.owner_token, q.attempt_count, q.deferral_count, \
     q.delivery_count, q.last_attempt_at, q.last_error, seen.hash, seen.first_seen, seen.last_seen";

/// The .sql files of one dialect.
pub(crate) struct Files {
    pub(crate) enqueue: &'static str,
    pub(crate) enqueue_many: Option<&'static str>,
    pub(crate) enqueue_joined: Option<&'static str>,
    pub(crate) enqueue_member: Option<&'static str>,
    pub(crate) enqueue_wait: &'static str,
    pub(crate) enqueue_once: &'static str,
    pub(crate) forget_keys: &'static str,
    pub(crate) ack_and_enqueue: Option<&'static str>,
    pub(crate) held: Option<&'static str>,
    pub(crate) claim: &'static str,
    pub(crate) ack: &'static str,
    pub(crate) abandon: &'static str,
    pub(crate) fail: &'static str,
    pub(crate) renew: &'static str,
    pub(crate) release: &'static str,
    pub(crate) settle_and_claim: Option<&'static str>,
    pub(crate) announce: Option<&'static str>,
    pub(crate) reap: &'static str,
    pub(crate) replay: &'static str,
    pub(crate) purge: &'static str,
    pub(crate) cleanup: &'static str,
    pub(crate) maintain: &'static str,
    pub(crate) get: &'static str,
    pub(crate) list: &'static str,
    pub(crate) list_count: &'static str,
    pub(crate) match_dead: &'static str,
    pub(crate) count_dead: &'static str,
    pub(crate) count: &'static str,
    pub(crate) inbox_count: &'static str,
    pub(crate) stats: &'static str,
    pub(crate) topics: &'static str,
    pub(crate) unattended: &'static str,
    pub(crate) overdue_leases: &'static str,
    pub(crate) inbox_already_processed: &'static str,
    pub(crate) inbox_enqueue: &'static str,
    pub(crate) inbox_mark: &'static str,
    pub(crate) inbox_get: &'static str,
    pub(crate) inbox_forget: &'static str,
    pub(crate) join_start: &'static str,
    pub(crate) join_attach: &'static str,
    pub(crate) join_report: &'static str,
    pub(crate) join_reconcile: &'static str,
    pub(crate) join_cancel: &'static str,
    pub(crate) join_get: &'static str,
    pub(crate) join_list: &'static str,
    pub(crate) join_recent: &'static str,
    pub(crate) join_members: &'static str,
    pub(crate) join_cleanup: &'static str,
    pub(crate) audit_record: &'static str,
    pub(crate) audit_list: &'static str,
    pub(crate) audit_cleanup: &'static str,
    pub(crate) clock: &'static str,
    pub(crate) totals: &'static str,
    pub(crate) invalid_indexes: &'static str,
    pub(crate) held_snapshots: Option<&'static str>,
    pub(crate) table_growth: Option<&'static str>,
    pub(crate) file_state: Option<&'static str>,
    /// What tells two queues, or two ways to settle, apart: placeholder and text. A text may hold
    /// placeholders that stand further down the list.
    pub(crate) fragments: fn(Queue, By) -> Vec<(&'static str, String)>,
    /// Tables, in the order in which they are applied: version, name, text.
    pub(crate) migrations: &'static [(i64, &'static str, &'static str)],
    /// Functions and views: applied again whenever they differ. The flag says whether the file is
    /// made for each of the two queues.
    pub(crate) replaceable: &'static [(bool, &'static str)],
}

/// Which of the two work queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Messages that leave.
    Outbox,
    /// Messages that came in.
    Inbox,
}

impl Queue {
    /// Its name in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Outbox => "outbox",
            Self::Inbox => "inbox",
        }
    }

    /// A text of the outbox or one of the inbox.
    pub(super) fn either<T>(self, outbox: T, inbox: T) -> T {
        match self {
            Self::Outbox => outbox,
            Self::Inbox => inbox,
        }
    }

    pub(super) fn only_outbox(self, text: impl Into<String>) -> String {
        self.either(text.into(), String::new())
    }

    pub(super) fn only_inbox(self, text: impl Into<String>) -> String {
        self.either(String::new(), text.into())
    }

    /// The number of a parameter that follows the inbox's own one, the source.
    pub(super) fn number(self, of_outbox: u8) -> u8 {
        of_outbox + self.either(0, 1)
    }
}

pub(crate) fn files(dialect: Dialect) -> &'static Files {
    match dialect {
        Dialect::Postgres => &postgres::FILES,
        Dialect::Sqlite => &sqlite::FILES,
        Dialect::MySql => &mysql::FILES,
        Dialect::SqlServer => &mssql::FILES,
    }
}

struct Writer<'a> {
    dialect: Dialect,
    names: &'a Names,
}

impl Writer<'_> {
    fn files(&self) -> &'static Files {
        files(self.dialect)
    }

    fn script(&self, queue: &Identifier, by: By, text: &str) -> Arc<Script> {
        Script::parse(
            self.dialect,
            &render(self.dialect, self.names, queue, by, text),
        )
    }

    /// A list has two orders, and a database walks an index only in an order that is written down.
    fn list(&self, queue: &Identifier, by: By, direction: &str, nulls: &str) -> Arc<Script> {
        let text = render(self.dialect, self.names, queue, by, self.files().list)
            .replace("{direction_and_nulls}", nulls)
            .replace("{direction}", direction)
            .replace("{beyond}", if direction == "ASC" { ">" } else { "<" });
        Script::parse(self.dialect, &text)
    }

    fn queue(&self, queue: &Identifier, by: By) -> QueueSql {
        let files = self.files();
        let script = |text| self.script(queue, by, text);
        let count = if *queue == self.names.outbox {
            files.count
        } else {
            files.inbox_count
        };
        QueueSql {
            claim: script(files.claim),
            ack: script(files.ack),
            abandon: script(files.abandon),
            fail: script(files.fail),
            renew: script(files.renew),
            release: script(files.release),
            settle_and_claim: files.settle_and_claim.map(script),
            announce: files.announce.map(script),
            ack_and_enqueue: files.ack_and_enqueue.map(script),
            held: files.held.map(script),
            reap: script(files.reap),
            replay: script(files.replay),
            purge: script(files.purge),
            cleanup: script(files.cleanup),
            maintain: script(files.maintain),
            get: script(files.get),
            list: self.list(queue, by, "ASC", "ASC NULLS FIRST"),
            list_newest: self.list(queue, by, "DESC", "DESC NULLS LAST"),
            list_count: script(files.list_count),
            match_dead: script(files.match_dead),
            count_dead: script(files.count_dead),
            count: script(count),
            stats: script(files.stats),
            topics: script(files.topics),
            unattended: script(files.unattended),
            overdue_leases: script(files.overdue_leases),
        }
    }
}

/// Fills in an .sql file: first what differs between queues, then the names.
pub(crate) fn render(
    dialect: Dialect,
    names: &Names,
    queue: &Identifier,
    by: By,
    text: &str,
) -> String {
    let kind = if *queue == names.outbox {
        Queue::Outbox
    } else {
        Queue::Inbox
    };
    let mut text = text.to_owned();
    for (placeholder, fragment) in (files(dialect).fragments)(kind, by) {
        if text.contains(placeholder) {
            text = text.replace(placeholder, &fragment);
        }
    }
    names.fill(dialect, queue, &text)
}

/// A migration of this store: its version, its name, and its text.
#[derive(Debug, Clone)]
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: String,
}

/// The migrations, oldest first, and the functions and views that follow them.
pub(crate) fn migrations(
    dialect: Dialect,
    names: &Names,
) -> Result<(Vec<Migration>, String), Error> {
    names.check_for(dialect)?;
    let files = files(dialect);
    let migrations = files
        .migrations
        .iter()
        .map(|&(version, name, text)| Migration {
            version,
            name,
            sql: render(dialect, names, &names.outbox, By::WorkItem, text),
        })
        .collect();
    let mut replaceable = String::new();
    for &(per_queue, text) in files.replaceable {
        let queues: &[&Identifier] = if per_queue {
            &[&names.outbox, &names.inbox]
        } else {
            &[&names.outbox]
        };
        for queue in queues {
            replaceable.push_str(&render(dialect, names, queue, By::WorkItem, text));
            replaceable.push('\n');
        }
    }
    Ok((migrations, replaceable))
}
