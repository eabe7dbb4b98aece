//! Who keeps a transaction open for so long that the server cannot remove what others have deleted.

use std::time::Duration;

use crate::error::Error;
use crate::observe::diagnose::{Cause, Finding, Severity, duration, spoken};
use crate::sql::{Dialect, Row};

/// A replication slot has no age, but one that is so many transactions behind is held up.
const SLOT_TRANSACTIONS: u64 = 1_000_000;

/// Who keeps a snapshot.
pub(super) struct Holder {
    what: String,
    pid: Option<i64>,
    state: String,
    age: Option<Duration>,
    transactions: u64,
}

impl Holder {
    /// Reads the columns of `held_snapshots.sql`.
    pub(super) fn read(mut row: Row) -> Result<Self, Error> {
        Ok(Self {
            what: row.text()?,
            pid: row.optional_int()?,
            state: row.text()?,
            age: row.optional_int()?.map(|micros| duration(Some(micros))),
            transactions: row
                .optional_int()?
                .and_then(|count| u64::try_from(count).ok())
                .unwrap_or(0),
        })
    }

    /// A word about it, when it has lasted for too long.
    pub(super) fn finding(&self, dialect: Dialect, patience: Duration) -> Option<Finding> {
        let too_long = match self.age {
            Some(age) => age >= patience,
            None => self.transactions >= SLOT_TRANSACTIONS,
        };
        if !too_long {
            return None;
        }
        let Self { what, state, .. } = self;
        let who = match self.pid {
            Some(pid) => format!("{what} of process {pid} ({state})"),
            None => format!("{what} `{state}`"),
        };
        let lasted = match self.age {
            Some(age) => format!("for {}", spoken(age)),
            None => format!("over {} transactions", self.transactions),
        };
        let consequence = match dialect {
            Dialect::SqlServer => "the log cannot be emptied, nor old versions of rows be removed",
            _ => "dead rows cannot be removed and claims slow down",
        };
        Some(Finding {
            cause: Cause::HeldSnapshot,
            severity: match self.age {
                Some(age) if age >= patience.saturating_mul(10) => Severity::Critical,
                _ => Severity::Warning,
            },
            summary: format!("A {who} has been open {lasted}, so that {consequence}."),
            advice: self.advice(dialect),
        })
    }

    fn advice(&self, dialect: Dialect) -> String {
        let Self { what, state, .. } = self;
        match (dialect, what.as_str(), self.pid) {
            (Dialect::MySql, "session", Some(pid)) => format!(
                "Let it commit, or end it with `KILL {pid}`; MariaDB's `idle_transaction_timeout` keeps it from \
                 happening again."
            ),
            (Dialect::MySql, ..) => {
                "Find it with `XA RECOVER`, and finish it with `XA COMMIT` or `XA ROLLBACK`.".to_owned()
            }
            (Dialect::SqlServer, _, Some(pid)) => {
                format!("Let it commit, or end it with `KILL {pid}`.")
            }
            (_, "session", Some(pid)) => format!(
                "Let it commit, or end it with `SELECT pg_terminate_backend({pid})`; \
                 `idle_in_transaction_session_timeout` keeps it from happening again."
            ),
            (_, "prepared transaction", _) => format!(
                "Finish it with `COMMIT PREPARED '{state}'` or `ROLLBACK PREPARED '{state}'`."
            ),
            _ => "Let its consumer catch up, or drop the slot with `pg_drop_replication_slot` if nobody needs it."
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_far_behind_is_named_without_an_age() {
        let finding = |transactions| {
            let slot = Holder {
                what: "replication slot".to_owned(),
                pid: None,
                state: "standby".to_owned(),
                age: None,
                transactions,
            };
            slot.finding(Dialect::Postgres, Duration::ZERO)
        };
        assert!(finding(SLOT_TRANSACTIONS - 1).is_none());
        let finding = finding(SLOT_TRANSACTIONS).expect("a finding");
        assert!(finding.summary.contains("`standby`"), "{}", finding.summary);
    }

    /// The servers of the tests allow no prepared transactions.
    #[test]
    fn a_prepared_transaction_is_named_by_its_name() {
        let holder = Holder {
            what: "prepared transaction".to_owned(),
            pid: None,
            state: "transfer-7".to_owned(),
            age: Some(Duration::from_secs(7_200)),
            transactions: 3,
        };
        let finding = |patience| holder.finding(Dialect::Postgres, Duration::from_secs(patience));
        let found = finding(60).expect("a finding");
        assert_eq!(found.severity, Severity::Critical);
        assert!(found.summary.contains("`transfer-7`") && found.summary.contains("2 hours"));
        assert!(found.advice.contains("ROLLBACK PREPARED 'transfer-7'"));
        assert_eq!(finding(7_201), None);
    }

    #[test]
    fn a_session_of_sql_server_is_named_with_what_it_holds_up() {
        let holder = Holder {
            what: "session".to_owned(),
            pid: Some(57),
            state: "sleeping".to_owned(),
            age: Some(Duration::from_secs(90)),
            transactions: 0,
        };
        let finding = holder.finding(Dialect::SqlServer, Duration::from_secs(60));
        let finding = finding.expect("a finding");
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.summary.contains("process 57 (sleeping)"));
        assert!(finding.advice.contains("KILL 57"), "{}", finding.advice);
    }
}
