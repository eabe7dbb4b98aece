//! Table names: checked against an allow-list, quoted in one place, filled into the .sql files.

use crate::error::{Error, ErrorKind};
use crate::migrate::checksum;
use crate::sql::Dialect;

/// An SQL identifier that has passed the allow-list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identifier(String);

impl Identifier {
    /// The longest name that still leaves room for our suffixes within PostgreSQL's 63 bytes.
    pub(crate) const LIMIT: usize = 48;

    /// Parses `[A-Za-z_][A-Za-z0-9_]*`, at most [`Self::LIMIT`] bytes.
    pub(crate) fn parse(param: &'static str, name: &str) -> Result<Self, Error> {
        let mut bytes = name.bytes();
        let first = bytes
            .next()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        let rest = bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if name.len() > Self::LIMIT {
            return Err(ErrorKind::OutOfRange { param }.with(format!(
                "a name has at most {} characters, this one {}",
                Self::LIMIT,
                name.len()
            )));
        }
        if !(first && rest) {
            return Err(ErrorKind::InvalidArgument { param }
                .with("a name starts with a letter or underscore and holds only letters, digits and underscores"));
        }
        Ok(Self(name.to_owned()))
    }
}

/// The names of one store: where its tables live and what they are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) schema: Option<Identifier>,
    pub(crate) outbox: Identifier,
    pub(crate) inbox: Identifier,
    pub(crate) join: Identifier,
    pub(crate) join_member: Identifier,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            schema: None,
            outbox: Identifier("outbox".to_owned()),
            inbox: Identifier("inbox".to_owned()),
            join: Identifier("outbox_join".to_owned()),
            join_member: Identifier("outbox_join_member".to_owned()),
        }
    }
}

impl Names {
    /// The names in use when none are chosen: on SQL Server those of the specification.
    pub(crate) fn of(dialect: Option<Dialect>) -> Self {
        if dialect != Some(Dialect::SqlServer) {
            return Self::default();
        }
        Self {
            schema: None,
            outbox: Identifier("Outbox".to_owned()),
            inbox: Identifier("Inbox".to_owned()),
            join: Identifier("OutboxJoin".to_owned()),
            join_member: Identifier("OutboxJoinMember".to_owned()),
        }
    }

    /// The schema in use: `infra` by default where the database has schemas. SQLite and MySQL have none:
    /// there a schema that was asked for becomes a prefix of the table names.
    pub(crate) fn schema(&self) -> &str {
        self.schema.as_ref().map_or("infra", |schema| &schema.0)
    }

    /// Refuses names that a database cannot hold: MySQL's have 64 characters at most, schema and suffix
    /// included, and some that begin as those of PostgreSQL and SQLite are not for us.
    pub(crate) fn check_for(&self, dialect: Dialect) -> Result<(), Error> {
        const LONGEST: usize = 64;
        if let Some(schema) = &self.schema {
            let reserved = match dialect {
                Dialect::Postgres => "pg_",
                Dialect::Sqlite => "sqlite_",
                Dialect::MySql | Dialect::SqlServer => "",
            };
            let first = format!("{}_", schema.0).to_ascii_lowercase();
            if !reserved.is_empty() && first.starts_with(reserved) {
                return Err(ErrorKind::InvalidArgument { param: "schema" }.with(format!(
                    "must not begin with `{}`, which the database keeps for itself",
                    reserved.trim_end_matches('_')
                )));
            }
        }
        let prefix = self.schema.as_ref().map_or(0, |schema| schema.0.len() + 1);
        let longest_of_each = [
            (&self.outbox, "_audit_subject"),
            (&self.inbox, "_dead_topic"),
            (&self.join, "_grouping_key"),
            (&self.join_member, "_join"),
        ];
        for (base, suffix) in longest_of_each {
            let length = prefix + base.0.len() + suffix.len();
            if dialect == Dialect::MySql && length > LONGEST {
                return Err(ErrorKind::OutOfRange { param: "schema" }.with(format!(
                    "on MySQL the schema is a part of table names: with `{}{suffix}` it makes {length} characters, at \
                     most {LONGEST} are allowed",
                    base.0
                )));
            }
        }
        self.check()
    }

    /// Refuses names that would make two tables one.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bases = [
            ("outbox_table", &self.outbox),
            ("inbox_table", &self.inbox),
            ("join_table", &self.join),
            ("join_member_table", &self.join_member),
        ];
        let tables = |name: &str| -> Vec<String> {
            [
                "",
                "_done",
                "_done_rest",
                "_dead",
                "_seen",
                "_wait",
                "_schema",
                "_all",
                "_key",
                "_audit",
            ]
            .iter()
            .chain(&["wait", "schema", "key", "audit"])
            .map(|suffix| format!("{}{suffix}", name.to_ascii_lowercase()))
            .collect()
        };
        for (index, (param, name)) in bases.iter().enumerate() {
            for (_, earlier) in &bases[..index] {
                if tables(&name.0)
                    .iter()
                    .any(|table| tables(&earlier.0).contains(table))
                {
                    return Err(ErrorKind::InvalidArgument { param }.with(format!(
                        "`{}` would collide with the tables of `{}`",
                        name.0, earlier.0
                    )));
                }
            }
        }
        Ok(())
    }

    /// Where workers listen for what comes into a queue: a short name of our own, because a channel's
    /// name is shorter than a schema's and a table's together may be.
    pub(crate) fn channel(&self, queue: &Identifier) -> String {
        let table = format!("{}.{}", self.schema(), queue.0);
        format!("postroom_{}", checksum(&table))
    }

    /// Fills the placeholders of an .sql file:
    /// `{outbox}` is a quoted, qualified table; `{outbox+_done}` the same with a suffix;
    /// `{name outbox+_ready}` is quoted but not qualified; `{plain outbox}` is bare, for use inside a
    /// string; `{schema}` is the quoted schema. `queue` stands for the table in `queue`.
    /// What is not one of these stays as it is.
    pub(crate) fn fill(&self, dialect: Dialect, queue: &Identifier, text: &str) -> String {
        let mut filled = String::with_capacity(text.len() + 256);
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            filled.push_str(&rest[..start]);
            rest = &rest[start..];
            let end = rest.find('}').map_or(rest.len(), |end| end + 1);
            match self.resolve(dialect, queue, rest[..end].trim_matches(['{', '}'])) {
                Some(name) => filled.push_str(&name),
                None => filled.push_str(&rest[..end]),
            }
            rest = &rest[end..];
        }
        filled.push_str(rest);
        filled
    }

    fn resolve(&self, dialect: Dialect, queue: &Identifier, placeholder: &str) -> Option<String> {
        if placeholder == "schema" {
            return Some(quoted(dialect, self.schema()));
        }
        let (form, name) = placeholder.split_once(' ').unwrap_or(("", placeholder));
        let (base, suffix) = name.split_once('+').unwrap_or((name, ""));
        let base = match base {
            "queue" => queue,
            "outbox" => &self.outbox,
            "inbox" => &self.inbox,
            "join" => &self.join,
            "join_member" => &self.join_member,
            _ => return None,
        };
        let table = match (dialect, &self.schema) {
            (Dialect::Sqlite | Dialect::MySql, Some(prefix)) => {
                format!("{}_{}{suffix}", prefix.0, base.0)
            }
            _ => format!("{}{suffix}", base.0),
        };
        match (form, dialect) {
            ("plain", _) => Some(table),
            ("name", _) | ("", Dialect::Sqlite | Dialect::MySql) => Some(quoted(dialect, &table)),
            ("", Dialect::Postgres | Dialect::SqlServer) => Some(format!(
                "{}.{}",
                quoted(dialect, self.schema()),
                quoted(dialect, &table)
            )),
            _ => None,
        }
    }
}

/// Quotes an identifier. The allow-list has made sure that it holds no quote.
fn quoted(dialect: Dialect, name: &str) -> String {
    match dialect {
        Dialect::Postgres | Dialect::Sqlite => format!("\"{name}\""),
        Dialect::MySql => format!("`{name}`"),
        Dialect::SqlServer => format!("[{name}]"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn placeholders_become_quoted_names() {
        let names = Names {
            schema: Some(Identifier("shop".to_owned())),
            ..Names::default()
        };
        let text = "{outbox} {queue+_done} {name join+_x} {plain inbox} {schema} {other} {";
        assert_eq!(
            names.fill(Dialect::Postgres, &names.inbox, text),
            r#""shop"."outbox" "shop"."inbox_done" "outbox_join_x" inbox "shop" {other} {"#
        );
        assert_eq!(
            names.fill(Dialect::Sqlite, &names.inbox, text),
            r#""shop_outbox" "shop_inbox_done" "shop_outbox_join_x" shop_inbox "shop" {other} {"#
        );
        assert_eq!(
            names.fill(Dialect::MySql, &names.inbox, text),
            "`shop_outbox` `shop_inbox_done` `shop_outbox_join_x` shop_inbox `shop` {other} {"
        );
        assert_eq!(
            names.fill(Dialect::SqlServer, &names.inbox, text),
            "[shop].[outbox] [shop].[inbox_done] [outbox_join_x] inbox [shop] {other} {"
        );
    }

    #[test]
    fn names_that_inject_are_refused() {
        for name in [
            "",
            "a b",
            "a;drop table x",
            "a\"b",
            "a'b",
            "1a",
            "a-b",
            "a.b",
            "é",
            "a\0",
            "{outbox}",
            "a\nb",
        ] {
            let error = Identifier::parse("schema", name).expect_err(name);
            assert_eq!(error.param(), Some("schema"), "{name:?}");
        }
        assert_eq!(
            Identifier::parse("schema", &"a".repeat(49))
                .expect_err("too long")
                .kind(),
            ErrorKind::OutOfRange { param: "schema" }
        );
    }

    #[test]
    fn colliding_names_are_refused() {
        let names = Names {
            inbox: Identifier("OUTBOX_done".to_owned()),
            ..Names::default()
        };
        assert_eq!(
            names.check().expect_err("collision").param(),
            Some("inbox_table")
        );
    }

    proptest! {
        #[test]
        fn whatever_passes_is_one_plain_word(name in "\\PC{0,60}") {
            if let Ok(identifier) = Identifier::parse("schema", &name) {
                for (dialect, quotes) in [
                    (Dialect::Postgres, ['"', '"']),
                    (Dialect::Sqlite, ['"', '"']),
                    (Dialect::MySql, ['`', '`']),
                    (Dialect::SqlServer, ['[', ']']),
                ] {
                    let filled = quoted(dialect, &identifier.0);
                    prop_assert!(filled[1..filled.len() - 1].bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
                    prop_assert_eq!(filled.matches(quotes).count(), 2);
                    prop_assert!(filled.starts_with(quotes[0]) && filled.ends_with(quotes[1]));
                }
            }
        }
    }
}
