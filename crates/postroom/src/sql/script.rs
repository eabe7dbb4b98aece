//! An .sql file, ready to run: its statements, and which parameters each of them takes.

use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::sql::{Dialect, Statement, Value};

/// One operation: a single statement on PostgreSQL, a batch on SQL Server, one statement or more elsewhere.
/// All statements of a script run in one transaction.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) parts: Vec<Part>,
}

/// One statement of a script.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) sql: Arc<str>,
    /// Which of the call's values are the statement's `?1`, `?2`, …, or on MySQL its `?`, one by one.
    pub(crate) values: Vec<usize>,
    /// Run only if the last statement without this mark changed a row.
    pub(crate) if_changed: bool,
}

/// A script with its values.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) script: Arc<Script>,
    pub(crate) values: Vec<Value>,
    /// What it means when the first statement changes no row. Such a call is an error and its
    /// transaction is undone.
    pub(crate) needs: Option<ErrorKind>,
    quick: bool,
}

impl Script {
    pub(crate) fn parse(dialect: Dialect, text: &str) -> Arc<Self> {
        let parts = match dialect {
            Dialect::Postgres => vec![Part {
                sql: text.trim().trim_end_matches(';').into(),
                values: Vec::new(),
                if_changed: false,
            }],
            Dialect::SqlServer => vec![Part {
                sql: without_comments(text).into(),
                values: Vec::new(),
                if_changed: false,
            }],
            Dialect::Sqlite => statements(text).map(renumbered).collect(),
            Dialect::MySql => statements(text).map(unnumbered).collect(),
        };
        Arc::new(Self { parts })
    }

    pub(crate) fn call(self: &Arc<Self>, values: Vec<Value>) -> Call {
        Call {
            script: Arc::clone(self),
            values,
            needs: None,
            quick: false,
        }
    }
}

impl Call {
    /// Makes it an error of this kind when the first statement changes no row.
    pub(crate) fn needs(mut self, kind: ErrorKind) -> Self {
        self.needs = Some(kind);
        self
    }

    /// Says that the call touches few rows.
    pub(crate) fn quick(mut self) -> Self {
        self.quick = true;
        self
    }

    /// Whether it may run where its caller is: it was said to be quick, and carries little.
    #[cfg(feature = "sqlite")]
    pub(crate) fn is_small(&self) -> bool {
        let bytes = |value: &Value| match value {
            Value::Uuids(ids) => ids.len() * 500,
            other => written(other),
        };
        self.quick && self.values.iter().map(bytes).sum::<usize>() <= 64 * 1024
    }

    /// How many bytes its largest statement has, with its values: more than a little only where a text or bytes
    /// are among them.
    pub(crate) fn largest_statement(&self) -> usize {
        let statement = |part: &Part| {
            let values = part
                .values
                .iter()
                .map(|&index| written(&self.values[index]).max(size_of::<Value>()));
            part.sql.len() + values.sum::<usize>()
        };
        self.script.parts.iter().map(statement).max().unwrap_or(0)
    }

    /// Checks what the first statement changed against what the call needs.
    pub(crate) fn check(needs: Option<ErrorKind>, changed: u64) -> Result<(), Error> {
        match needs {
            Some(kind) if changed == 0 => Err(kind.with("nothing was written")),
            _ => Ok(()),
        }
    }

    /// The statements one by one, for a client that knows nothing of scripts.
    pub(crate) fn into_statements(mut self) -> Vec<Statement> {
        match self.script.parts.as_slice() {
            [only] if only.values.is_empty() || in_order(&only.values, self.values.len()) => {
                vec![Statement {
                    sql: Arc::clone(&only.sql),
                    values: std::mem::take(&mut self.values),
                }]
            }
            parts => parts
                .iter()
                .map(|part| Statement {
                    sql: Arc::clone(&part.sql),
                    values: part
                        .values
                        .iter()
                        .map(|&index| self.values[index].clone())
                        .collect(),
                })
                .collect(),
        }
    }
}

fn in_order(values: &[usize], count: usize) -> bool {
    values.len() == count
        && values
            .iter()
            .enumerate()
            .all(|(position, &index)| position == index)
}

/// Splits at semicolons that end a line. No statement of ours holds one anywhere else.
pub(crate) fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.split(";\n")
        .map(|statement| statement.trim().trim_end_matches(';'))
        .filter(|statement| {
            statement
                .lines()
                .any(|line| !line.trim().is_empty() && !line.trim_start().starts_with("--"))
        })
}

/// Renumbers `?3, ?7` to `?1, ?2` and remembers where the values come from, because most clients want
/// exactly the parameters that a statement uses.
fn renumbered(text: &str) -> Part {
    part(text, |values, index| {
        let known = values.iter().position(|&known| known == index);
        let position = known.unwrap_or_else(|| {
            values.push(index);
            values.len() - 1
        });
        (position + 1).to_string()
    })
}

/// The length of a text or of bytes.
fn written(value: &Value) -> usize {
    match value {
        Value::Text(Some(text)) => text.len(),
        Value::Bytes(Some(bytes)) => bytes.len(),
        _ => 0,
    }
}

/// Turns `?3, ?7` into `?, ?` and remembers where the values come from: each takes the next.
fn unnumbered(text: &str) -> Part {
    part(text, |values, index| {
        values.push(index);
        String::new()
    })
}

/// Takes a statement apart. `number` notes a value, and says what follows its question mark.
fn part(text: &str, number: fn(&mut Vec<usize>, usize) -> String) -> Part {
    let if_changed = text.contains("-- if-changed");
    let text = without_comments(text);
    let mut sql = String::with_capacity(text.len());
    let mut values: Vec<usize> = Vec::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find('?') {
        sql.push_str(&rest[..=start]);
        rest = &rest[start + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if let Ok(parameter) = rest[..digits].parse::<usize>() {
            sql.push_str(&number(&mut values, parameter - 1));
        }
        rest = &rest[digits..];
    }
    sql.push_str(rest);
    Part {
        sql: sql.into(),
        values,
        if_changed,
    }
}

/// Comments are for the reader of the file; in the statement they would only be hashed and parsed.
fn without_comments(sql: &str) -> String {
    let lines: Vec<&str> = sql
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"))
        .collect();
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_renumbered_without_gaps() {
        let script = Script::parse(
            Dialect::Sqlite,
            "-- what ?9\nUPDATE a SET b = ?3, c = ?7, d = ?3;\n\n-- if-changed\nDELETE FROM a;\n",
        );
        assert_eq!(script.parts.len(), 2);
        assert_eq!(&*script.parts[0].sql, "UPDATE a SET b = ?1, c = ?2, d = ?1");
        assert_eq!(script.parts[0].values, [2, 6]);
        assert!(script.parts[1].if_changed);
    }

    #[test]
    fn mysql_takes_a_value_for_each_question_mark() {
        let script = Script::parse(Dialect::MySql, "UPDATE a SET b = ?3, c = ?7, d = ?3");
        assert_eq!(&*script.parts[0].sql, "UPDATE a SET b = ?, c = ?, d = ?");
        assert_eq!(script.parts[0].values, [2, 6, 2]);
    }
}
