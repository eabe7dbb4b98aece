//! Schema deployment: explicit, versioned, checksummed, and safe when many do it at once.
//!
//! Tables come from numbered migrations that are applied once and never change. Functions and views
//! are replaced whenever they differ from this library's. Everything happens in one transaction
//! under a lock, so eight processes that start on an empty database end with one schema. MySQL commits
//! every statement that makes a table: there a migration is noted before and after, under the lock too.

use std::hash::Hasher;

use crate::error::{Error, ErrorKind};
use crate::sql::{Dialect, Migration, Names, migrations};

/// The version under which the checksum of functions and views is recorded.
pub(crate) const FUNCTIONS_VERSION: i64 = 0;

/// Raise it with every change of a function or view. A program with an older revision leaves the newer
/// ones alone, so that old and new can run side by side.
const FUNCTIONS_REVISION: u32 = 4;

/// What a driver needs in order to deploy.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Takes the lock and makes the schema, where the database has such things.
    pub(crate) create_schema: String,
    pub(crate) create_versions: String,
    pub(crate) select_versions: String,
    pub(crate) record_version: String,
    migrations: Vec<Migration>,
    functions: String,
}

impl Plan {
    pub(crate) fn new(dialect: Dialect, names: &Names) -> Result<Self, Error> {
        let (migrations, functions) = migrations(dialect, names)?;
        let fill = |text: &str| names.fill(dialect, &names.outbox, text);
        let (create_schema, create_versions, record_version) = match dialect {
            Dialect::Postgres => (
                include_str!("sql/postgres/migrations/schema.sql"),
                include_str!("sql/postgres/migrations/versions.sql"),
                include_str!("sql/postgres/migrations/record.sql"),
            ),
            Dialect::Sqlite => (
                "",
                include_str!("sql/sqlite/migrations/versions.sql"),
                include_str!("sql/sqlite/migrations/record.sql"),
            ),
            Dialect::MySql => (
                include_str!("sql/mysql/migrations/lock.sql"),
                include_str!("sql/mysql/migrations/versions.sql"),
                include_str!("sql/mysql/migrations/record.sql"),
            ),
            Dialect::SqlServer => (
                include_str!("sql/mssql/migrations/schema.sql"),
                include_str!("sql/mssql/migrations/versions.sql"),
                include_str!("sql/mssql/migrations/record.sql"),
            ),
        };
        let select_versions = match dialect {
            Dialect::SqlServer => include_str!("sql/mssql/migrations/applied.sql"),
            _ => "SELECT version, checksum FROM {outbox+_schema} ORDER BY version",
        };
        Ok(Self {
            create_schema: fill(create_schema),
            create_versions: fill(create_versions),
            select_versions: fill(select_versions),
            record_version: fill(record_version),
            migrations,
            functions,
        })
    }

    /// What is still to be applied: version, name, checksum and text. Refuses a schema that is newer
    /// than this library or whose migrations were changed.
    pub(crate) fn missing(
        &self,
        applied: &[(i64, String)],
    ) -> Result<Vec<(i64, &'static str, String, &str)>, Error> {
        self.refuse_unknown(applied)?;
        let known = |version: i64| {
            applied
                .iter()
                .find(|(other, _)| *other == version)
                .map(|(_, checksum)| checksum)
        };
        let mut missing: Vec<_> = self
            .migrations
            .iter()
            .filter(|migration| known(migration.version).is_none())
            .map(|migration| {
                (
                    migration.version,
                    migration.name,
                    checksum(&migration.sql),
                    migration.sql.as_str(),
                )
            })
            .collect();
        let functions = self.functions_checksum();
        let newer =
            known(FUNCTIONS_VERSION).is_some_and(|known| revision(known) > FUNCTIONS_REVISION);
        if !newer && (!missing.is_empty() || known(FUNCTIONS_VERSION) != Some(&functions)) {
            missing.push((FUNCTIONS_VERSION, "functions", functions, &self.functions));
        }
        Ok(missing)
    }

    fn functions_checksum(&self) -> String {
        format!("{FUNCTIONS_REVISION}-{}", checksum(&self.functions))
    }

    /// The tables and indexes, by name as the catalog knows them.
    pub(crate) fn relations(&self, dialect: Dialect, names: &Names) -> Vec<String> {
        let mut relations = self.tables(dialect);
        relations.extend(self.indexes(dialect, names));
        if dialect == Dialect::MySql {
            // No statement of ours reads a view there, so that nobody else would miss one.
            relations.extend(self.replaceable().into_iter().map(bare));
        }
        relations
    }

    /// The tables, by name as the catalog knows them.
    pub(crate) fn tables(&self, dialect: Dialect) -> Vec<String> {
        self.created("CREATE TABLE ")
            .map(|name| match dialect {
                Dialect::Sqlite | Dialect::MySql => bare(name),
                Dialect::Postgres | Dialect::SqlServer => name.to_owned(),
            })
            .collect()
    }

    /// The indexes, by name as the catalog knows them.
    pub(crate) fn indexes(&self, dialect: Dialect, names: &Names) -> Vec<String> {
        let schema = names.fill(dialect, &names.outbox, "{schema}");
        let apart = || {
            self.created("CREATE INDEX ")
                .chain(self.created("CREATE UNIQUE INDEX "))
        };
        match dialect {
            Dialect::Sqlite => apart().map(bare).collect(),
            // There a table is made together with its indexes.
            Dialect::MySql => self.created("    INDEX ").map(bare).collect(),
            Dialect::Postgres | Dialect::SqlServer => {
                apart().map(|name| format!("{schema}.{name}")).collect()
            }
        }
    }

    /// The columns, by the names of their table and their own, where a statement cannot be prepared without
    /// running it: elsewhere that finds the missing ones.
    pub(crate) fn columns(&self, dialect: Dialect) -> Vec<String> {
        let mut columns = Vec::new();
        let mut table = "";
        let migrations = self
            .migrations
            .iter()
            .filter(|_| dialect == Dialect::SqlServer);
        for line in migrations.flat_map(|migration| migration.sql.lines()) {
            if let Some(rest) = line.strip_prefix("CREATE TABLE ") {
                table = rest.split(' ').next().unwrap_or_default();
            } else if line.starts_with(')') {
                table = "";
            } else if let Some((name, _)) = line.trim_start().split_once(' ')
                && !table.is_empty()
                && name != "CONSTRAINT"
            {
                columns.push(format!("{table}.[{name}]"));
            }
        }
        columns
    }

    /// What the migrations make with this statement, by name as SQL writes it.
    fn created<'a>(&'a self, statement: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self
            .migrations
            .iter()
            .flat_map(|migration| migration.sql.lines());
        lines.filter_map(move |line| line.strip_prefix(statement)?.split(' ').next())
    }

    /// The functions and views, by name as SQL writes it. They are applied again when one is lost.
    pub(crate) fn replaceable(&self) -> Vec<&str> {
        let starts = [
            "CREATE OR REPLACE FUNCTION ",
            "CREATE OR REPLACE VIEW ",
            "CREATE VIEW ",
            "ALTER PROCEDURE ",
            "ALTER FUNCTION ",
        ];
        self.functions
            .lines()
            .filter_map(|line| starts.iter().find_map(|start| line.strip_prefix(start)))
            .filter_map(|rest| rest.split(['(', ' ']).next())
            .collect()
    }

    /// Says what is wrong with a schema, if anything is.
    pub(crate) fn verify(&self, applied: Option<&[(i64, String)]>) -> Result<(), Error> {
        let Some(applied) = applied else {
            return Err(ErrorKind::Schema
                .with("nothing is deployed; run `deploy()` or `postroom schema deploy`"));
        };
        match self.missing(applied)?.first() {
            None => Ok(()),
            Some((FUNCTIONS_VERSION, ..)) => Err(ErrorKind::Schema
                .with("functions and views differ from this library's; run `deploy()` or `postroom schema deploy`")),
            Some((version, name, ..)) => Err(ErrorKind::Schema.with(format!(
                "migration {version} ({name}) is missing; run `deploy()` or `postroom schema deploy`"
            ))),
        }
    }

    fn refuse_unknown(&self, applied: &[(i64, String)]) -> Result<(), Error> {
        for (version, applied_checksum) in applied
            .iter()
            .filter(|(version, _)| *version != FUNCTIONS_VERSION)
        {
            let Some(migration) = self
                .migrations
                .iter()
                .find(|migration| migration.version == *version)
            else {
                return Err(ErrorKind::Schema.with(format!(
                    "the schema has version {version}, which is newer than this library; upgrade it"
                )));
            };
            if checksum(&migration.sql) != *applied_checksum {
                return Err(ErrorKind::Schema.with(format!(
                    "migration {version} ({}) was applied with another text; restore it or start from a fresh schema",
                    migration.name
                )));
            }
        }
        Ok(())
    }

    /// Everything as one script, for people who run their own migrations.
    pub(crate) fn script(&self, dialect: Dialect) -> String {
        let mut script = format!(
            "-- postroom schema for {}\n\n{}{}\n",
            dialect.name(),
            self.create_schema,
            self.create_versions
        );
        for migration in &self.migrations {
            script.push_str(&format!(
                "-- migration {}: {}\n{}\n",
                migration.version, migration.name, migration.sql
            ));
            script.push_str(&self.record_line(
                dialect,
                migration.version,
                migration.name,
                &checksum(&migration.sql),
            ));
        }
        script.push_str(&self.functions);
        script.push_str(&self.record_line(
            dialect,
            FUNCTIONS_VERSION,
            "functions",
            &self.functions_checksum(),
        ));
        script
    }

    /// The statement that records a version, filled in. Names and checksums are our own words.
    pub(crate) fn record_line(
        &self,
        dialect: Dialect,
        version: i64,
        name: &str,
        checksum: &str,
    ) -> String {
        let sign = match dialect {
            Dialect::Postgres => "$",
            Dialect::Sqlite | Dialect::MySql => "?",
            Dialect::SqlServer => "@P",
        };
        let record = self
            .record_version
            .replace(&format!("{sign}1"), &version.to_string())
            .replace(&format!("{sign}2"), &format!("'{name}'"))
            .replace(&format!("{sign}3"), &format!("'{checksum}'"));
        format!("{record}\n")
    }
}

/// A name without its quotes.
fn bare(name: &str) -> String {
    name.trim_matches(['"', '`']).to_owned()
}

/// The revision in a checksum of functions.
fn revision(checksum: &str) -> u32 {
    let revision = checksum
        .split_once('-')
        .map(|(revision, _)| revision.parse());
    revision.and_then(Result::ok).unwrap_or(0)
}

/// A checksum of a migration's text. It guards against mistakes, not against attackers.
pub(crate) fn checksum(text: &str) -> String {
    /// FNV-1a: the same on every platform and in every version of this library.
    struct Fnv(u64);
    impl Hasher for Fnv {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(text.as_bytes());
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new(Dialect::Postgres, &Names::default()).expect("a plan")
    }

    fn all(plan: &Plan) -> Vec<(i64, String)> {
        plan.missing(&[])
            .expect("missing")
            .into_iter()
            .map(|(version, _, checksum, _)| (version, checksum))
            .collect()
    }

    #[test]
    fn what_is_applied_is_not_missing() {
        let plan = plan();
        assert!(plan.missing(&all(&plan)).expect("missing").is_empty());
        plan.verify(Some(&all(&plan))).expect("complete");
    }

    #[test]
    fn functions_and_views_are_known_by_name() {
        let plan = plan();
        for name in [
            r#""infra"."outbox_claim""#,
            r#""infra"."inbox_ack""#,
            r#""infra"."outbox_all""#,
        ] {
            assert!(plan.replaceable().contains(&name), "{name}");
        }
    }

    #[test]
    fn newer_functions_are_left_alone() {
        let plan = plan();
        let mut applied = all(&plan);
        let functions = applied
            .iter_mut()
            .find(|(version, _)| *version == FUNCTIONS_VERSION);
        functions.expect("functions").1 = format!("{}-other", FUNCTIONS_REVISION + 1);
        plan.verify(Some(&applied)).expect("complete");
        assert!(plan.missing(&applied).expect("missing").is_empty());
    }

    #[test]
    fn tables_and_indexes_are_known_by_name() {
        let plan = plan();
        let relations = plan.relations(Dialect::Postgres, &Names::default());
        for name in [
            r#""infra"."outbox""#,
            r#""infra"."outbox_ready""#,
            r#""infra"."outbox_done_rest""#,
        ] {
            assert!(relations.iter().any(|known| known == name), "{name}");
        }
    }

    #[test]
    fn columns_of_sql_server_are_known_by_name() {
        let names = Names::of(Some(Dialect::SqlServer));
        let plan = Plan::new(Dialect::SqlServer, &names).expect("a plan");
        let columns = plan.columns(Dialect::SqlServer);
        for name in [
            "[infra].[Outbox].[NextAttemptAt]",
            "[infra].[Inbox].[KeyHash]",
            "[infra].[OutboxJoinWait].[MessageId]",
        ] {
            assert!(columns.iter().any(|known| known == name), "{name}");
        }
        assert!(
            columns
                .iter()
                .all(|column| column.matches("].[").count() == 2)
        );
        assert!(plan.columns(Dialect::Postgres).is_empty());
    }

    #[test]
    fn a_newer_schema_and_a_changed_migration_are_refused() {
        let plan = plan();
        let mut newer = all(&plan);
        newer.push((99, "x".to_owned()));
        assert!(
            plan.verify(Some(&newer))
                .expect_err("newer")
                .to_string()
                .contains("newer")
        );
        let mut changed = all(&plan);
        changed[0].1 = "x".to_owned();
        assert!(
            plan.verify(Some(&changed))
                .expect_err("changed")
                .to_string()
                .contains("another text")
        );
    }
}
