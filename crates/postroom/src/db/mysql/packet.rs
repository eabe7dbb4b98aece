//! Calls as the server gets them: one prepared statement, or a text of statements that is one round trip.

use std::sync::Arc;

use mysql_async::Params;
use mysql_async::prelude::{Protocol, Queryable};

use super::connect::Connection;
use super::errors::{Failure, too_large};
use super::values::{decode, encoded, literal};
use crate::db::Output;
use crate::error::ErrorKind;
use crate::sql::{Call, Part, Row, Value};

/// Longer texts go in pieces, in the same transaction: the server has to hold each of them at once, and
/// refuses what is beyond its `max_allowed_packet`.
const LARGEST_TEXT: usize = 1024 * 1024;

/// What one statement gave back.
struct Answer {
    rows: Vec<Row>,
    changed: u64,
}

/// Runs a call of one statement, which is its own transaction.
pub(super) async fn prepared(connection: &mut Connection, call: &Call) -> Result<Output, Failure> {
    let part = &call.script.parts[0];
    let values = part
        .values
        .iter()
        .map(|&index| encoded(&call.values[index]));
    let answer = execute(connection, &part.sql, values.collect()).await?;
    Call::check(call.needs, answer.changed)?;
    Ok(Output {
        ends: vec![answer.rows.len()],
        rows: answer.rows,
        changed: vec![answer.changed],
    })
}

/// Runs one statement with its values and says how many rows it changed.
pub(super) async fn changed(
    connection: &mut Connection,
    sql: &str,
    values: &[Value],
) -> Result<u64, Failure> {
    let values = values.iter().map(encoded).collect();
    Ok(execute(connection, sql, values).await?.changed)
}

/// Runs calls in a transaction of their own and commits it. It must be rolled back after an error.
pub(super) async fn transaction(
    connection: &mut Connection,
    calls: &[Call],
) -> Result<Output, Failure> {
    // What a call needs can only be known when the server has answered.
    let commit_at_once = calls.iter().all(|call| call.needs.is_none());
    let mut texts = Texts::new(connection);
    texts.control("START TRANSACTION");
    texts.calls(calls);
    if commit_at_once {
        texts.control("COMMIT");
    }
    let output = texts.run(connection, calls).await?;
    if !commit_at_once {
        connection.control("COMMIT").await?;
    }
    Ok(output)
}

/// Runs calls in whatever transaction is open.
pub(super) async fn in_transaction(
    connection: &mut Connection,
    calls: &[Call],
) -> Result<Output, Failure> {
    let mut texts = Texts::new(connection);
    texts.calls(calls);
    texts.run(connection, calls).await
}

async fn execute(
    connection: &mut Connection,
    sql: &str,
    values: Vec<mysql_async::Value>,
) -> Result<Answer, Failure> {
    let length = |value: &mysql_async::Value| match value {
        mysql_async::Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    if sql.len() + values.iter().map(length).sum::<usize>() > connection.largest_text() {
        return Err(too_large().into());
    }
    let peer = connection.peer()?;
    let conn = connection.conn()?;
    peer.answer(async {
        // Some statements cannot be prepared, BEGIN and SAVEPOINT among them. None of them has values.
        if values.is_empty() {
            return first(conn.query_iter(sql).await?).await;
        }
        let values = Params::Positional(values);
        first(conn.exec_iter(sql, values).await?).await
    })
    .await
}

async fn first<P: Protocol>(
    mut result: mysql_async::QueryResult<'_, '_, P>,
) -> Result<Answer, Failure> {
    let mut answers = Vec::new();
    read(&mut result, &mut answers).await?;
    let answer = answers.into_iter().next();
    answer.ok_or_else(|| ErrorKind::Database.with("the server gave no answer").into())
}

/// Reads all answers there are. Those before an error are kept.
async fn read<P: Protocol>(
    result: &mut mysql_async::QueryResult<'_, '_, P>,
    answers: &mut Vec<Answer>,
) -> Result<(), Failure> {
    loop {
        let Some(columns) = result.columns() else {
            // A statement that failed after others shows only here.
            result.next().await?;
            return Ok(());
        };
        let changed = result.affected_rows();
        let mut rows = Vec::new();
        while let Some(row) = result.next().await? {
            rows.push(decode(row)?);
        }
        let changed = if columns.is_empty() {
            changed
        } else {
            rows.len() as u64
        };
        answers.push(Answer { rows, changed });
    }
}

/// Statements with their values written into them.
struct Texts {
    finished: Vec<String>,
    current: String,
    /// How many bytes a text should have at most. A statement that has more is a text of its own.
    enough: usize,
    /// How many statements there are for each call; 0 for one that has joined the statement before it.
    statements: Vec<usize>,
    /// Whether a statement of our own comes first.
    begins: bool,
}

impl Texts {
    fn new(connection: &Connection) -> Self {
        Self::of(LARGEST_TEXT.min(connection.largest_text()))
    }

    fn of(enough: usize) -> Self {
        Self {
            finished: Vec::new(),
            current: String::new(),
            enough,
            statements: Vec::new(),
            begins: false,
        }
    }

    fn control(&mut self, sql: &str) {
        self.begins = self.begins || self.statements.is_empty();
        self.statement(sql, &[], &[]);
    }

    fn calls(&mut self, calls: &[Call]) {
        for (index, call) in calls.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| &calls[before]);
            let row = before.and_then(|before| row_of_same_insert(before, call));
            if row.is_some_and(|row| self.row(row, call)) {
                self.statements.push(0);
                continue;
            }
            for part in &call.script.parts {
                self.statement(&part.sql, &part.values, &call.values);
            }
            self.statements.push(call.script.parts.len());
        }
    }

    fn statement(&mut self, sql: &str, indexes: &[usize], values: &[Value]) {
        let start = self.current.len();
        write(&mut self.current, sql, indexes, values);
        self.current.push_str(";\n");
        if start > 0 && self.current.len() > self.enough {
            let next = self.current.split_off(start);
            self.finished
                .push(std::mem::replace(&mut self.current, next));
        }
    }

    /// Adds a row to the INSERT at the end, unless that would make it too long.
    fn row(&mut self, row: &str, call: &Call) -> bool {
        let end = self.current.len() - ";\n".len();
        self.current.truncate(end);
        self.current.push_str(",\n");
        let indexes = &call.script.parts[0].values;
        write(&mut self.current, row, indexes, &call.values);
        let fits = self.current.len() < self.enough;
        if !fits {
            self.current.truncate(end);
        }
        self.current.push_str(";\n");
        fits
    }

    /// Runs everything, and takes the answers apart by call.
    async fn run(mut self, connection: &mut Connection, calls: &[Call]) -> Result<Output, Failure> {
        self.finished.push(std::mem::take(&mut self.current));
        let largest = connection.largest_text();
        if self.finished.iter().any(|text| text.len() > largest) {
            return Err(too_large().into());
        }
        let peer = connection.peer()?;
        let mut answers = Vec::new();
        let mut failure = None;
        for text in self.finished {
            let conn = connection.conn()?;
            let result = peer.answer(async {
                let mut result = conn.query_iter(text).await?;
                read(&mut result, &mut answers).await
            });
            failure = result.await.err();
            if failure.is_some() {
                break;
            }
        }
        let mut answers = answers.into_iter().skip(usize::from(self.begins));
        let mut output = Output::default();
        for (call, statements) in calls.iter().zip(self.statements) {
            for (index, answer) in answers.by_ref().take(statements).enumerate() {
                // What a call needs comes before whatever happened to later statements.
                if index == 0 {
                    Call::check(call.needs, answer.changed)?;
                }
                output.changed.push(answer.changed);
                output.rows.extend(answer.rows);
            }
            output.ends.push(output.rows.len());
        }
        match failure {
            None => Ok(output),
            Some(failure) => Err(failure),
        }
    }
}

/// The row of an INSERT, when the call before it is the same INSERT: both can be one statement.
fn row_of_same_insert<'a>(before: &Call, call: &'a Call) -> Option<&'a str> {
    if !Arc::ptr_eq(&before.script, &call.script) || before.needs.or(call.needs).is_some() {
        return None;
    }
    let [Part { sql, .. }] = call.script.parts.as_slice() else {
        return None;
    };
    let (_, row) = sql.split_once("\nVALUES ")?;
    (sql.starts_with("INSERT INTO ") && row.starts_with('(') && row.ends_with(')')).then_some(row)
}

/// Writes SQL with its values in the places of the question marks. No statement of ours holds any other.
fn write(text: &mut String, sql: &str, indexes: &[usize], values: &[Value]) {
    let mut pieces = sql.split('?');
    text.push_str(pieces.next().unwrap_or_default());
    for (piece, &index) in pieces.zip(indexes) {
        literal(text, &values[index]);
        text.push_str(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Catalog, Dialect, Names, Script};

    #[test]
    fn values_are_written_where_they_belong() {
        let script = Script::parse(Dialect::MySql, "SELECT ?2, ?1, ?2");
        let call = script.call(vec![7.into(), "it's".into()]);
        let mut text = String::new();
        let part = &script.parts[0];
        write(&mut text, &part.sql, &part.values, &call.values);
        assert_eq!(text, "SELECT _utf8mb4 'it''s', 7, _utf8mb4 'it''s'");
    }

    #[test]
    fn the_same_insert_again_is_a_row_of_one_statement() {
        let insert = Script::parse(Dialect::MySql, "INSERT INTO a (b)\nVALUES (?1)");
        let other = Script::parse(Dialect::MySql, "DELETE FROM a");
        let calls = [
            insert.call(vec![1.into()]),
            insert.call(vec![2.into()]),
            other.call(Vec::new()),
            insert.call(vec![3.into()]),
        ];
        let mut texts = Texts::of(LARGEST_TEXT);
        texts.calls(&calls);
        assert_eq!(
            texts.current,
            "INSERT INTO a (b)\nVALUES (1),\n(2);\nDELETE FROM a;\nINSERT INTO a (b)\nVALUES (3);\n"
        );
        assert_eq!(texts.statements, [1, 0, 1, 1]);
    }

    #[test]
    fn a_text_is_no_longer_than_it_should_be_unless_one_statement_is() {
        let insert = Script::parse(Dialect::MySql, "INSERT INTO a (b)\nVALUES (?1)");
        let long = "x".repeat(100);
        let calls = ["a", "b", &long, "c"].map(|text| insert.call(vec![text.into()]));
        let mut texts = Texts::of(80);
        texts.control("START TRANSACTION");
        texts.calls(&calls);
        texts.control("COMMIT");
        let insert = |text: &str| format!("INSERT INTO a (b)\nVALUES (_utf8mb4 '{text}');\n");
        assert_eq!(
            texts.finished,
            [
                "START TRANSACTION;\nINSERT INTO a (b)\nVALUES (_utf8mb4 'a'),\n(_utf8mb4 'b');\n",
                &insert(&long)
            ]
        );
        assert_eq!(texts.current, insert("c") + "COMMIT;\n");
        assert_eq!(texts.statements, [1, 0, 1, 1]);
    }

    /// `write` puts a value in the place of every question mark.
    #[test]
    fn no_statement_holds_a_question_mark_that_is_not_a_value() {
        let catalog = Catalog::new(Dialect::MySql, &Names::default());
        for part in catalog.scripts().iter().flat_map(|script| &script.parts) {
            let Part { sql, values, .. } = part;
            assert_eq!(sql.matches('?').count(), values.len(), "{sql}");
            assert!(!sql.contains('\\'), "{sql}");
        }
    }
}
