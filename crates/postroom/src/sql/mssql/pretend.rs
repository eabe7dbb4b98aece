//! A database that is not there: it takes every call, remembers its parameters, and answers with rows of the
//! columns that the statement names. So the library itself shows what it binds and what it reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::db::{Applied, BoxFuture, Database, Output, Transaction};
use crate::error::{Error, ErrorKind};
use crate::migrate::Plan;
use crate::sql::{Call, Dialect, Names, Row, Script, Value};

/// The database, and what it was asked.
#[derive(Clone, Default)]
pub(super) struct Pretend(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    procedures: BTreeMap<String, Procedure>,
    statements: BTreeMap<String, Vec<&'static str>>,
    /// How often each statement came since the last `forget`.
    times: BTreeMap<String, u32>,
    /// Rows lack their last column.
    cut: bool,
}

/// A procedure, as far as its callers are concerned.
#[derive(Default)]
struct Procedure {
    /// Name, type, and whether a caller may leave it out.
    parameters: Vec<(String, String, bool)>,
    body: String,
}

/// Whatever is asked for by id has this one.
pub(super) const ID: Uuid = Uuid::from_u128(0x0199_0000_0000_7000_8000_0000_0000_0001);

impl Pretend {
    pub(super) fn new(plan: &Plan, names: &Names) -> Self {
        let mut procedures = BTreeMap::new();
        for batch in plan.script(Dialect::SqlServer).split("\nGO\n") {
            let Some((_, rest)) = batch.split_once("ALTER PROCEDURE ") else {
                continue;
            };
            let (head, body) = rest.split_once("\nAS\n").expect("a body");
            let mut lines = head.lines();
            let name = lines.next().expect("a name").trim().to_owned();
            let parameters = lines.map(parameter).collect();
            let body = body.to_owned();
            procedures.insert(name, Procedure { parameters, body });
        }
        assert!(procedures.len() > 30, "{}", names.schema());
        Self(Arc::new(Mutex::new(Asked {
            procedures,
            ..Asked::default()
        })))
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins anew: each statement finds something once.
    pub(super) fn forget(&self, cut: bool) {
        let mut asked = self.asked();
        asked.times.clear();
        asked.cut = cut;
    }

    /// Every statement that came, with the types of its parameters.
    pub(super) fn statements(&self) -> BTreeMap<String, Vec<&'static str>> {
        self.asked().statements.clone()
    }

    fn answer(&self, call: &Call) -> Result<Output, Error> {
        let sql = &*call.script.parts[0].sql;
        let mut asked = self.asked();
        asked.check_parameters(sql, &call.values);
        let types = call.values.iter().map(sql_type).collect();
        asked.statements.insert(sql.to_owned(), types);
        let times = asked.times.entry(sql.to_owned()).or_default();
        *times += 1;
        let first = *times == 1;
        let mut rows = Vec::new();
        for columns in asked.results(sql) {
            rows.extend(found(&columns, first));
        }
        if asked.cut {
            for row in &mut rows {
                row.pop();
            }
        }
        let changed = rows.len() as u64;
        Call::check(call.needs, changed)?;
        Ok(Output {
            ends: vec![rows.len()],
            rows: rows.into_iter().map(Row::new).collect(),
            changed: vec![changed],
        })
    }
}

impl Asked {
    /// The statement takes exactly what is bound, and a procedure gets what it takes.
    fn check_parameters(&self, sql: &str, values: &[Value]) {
        for number in 1..=values.len() {
            assert!(uses(sql, number), "@P{number} is bound and not used: {sql}");
        }
        let beyond = values.len() + 1;
        assert!(
            !uses(sql, beyond),
            "@P{beyond} is used and not bound: {sql}"
        );
        for (name, arguments) in calls(sql) {
            let procedure = self
                .procedures
                .get(&name)
                .unwrap_or_else(|| panic!("no procedure {name}"));
            for (argument, value) in &arguments {
                let known = procedure
                    .parameters
                    .iter()
                    .find(|(known, ..)| known == argument);
                let (_, wanted, _) = known.unwrap_or_else(|| panic!("{name} has no {argument}"));
                let Some(number) = value
                    .strip_prefix("@P")
                    .and_then(|n| n.parse::<usize>().ok())
                else {
                    continue;
                };
                assert!(
                    fits(&values[number - 1], wanted),
                    "{argument} of {name} is {wanted}, which {:?} does not fit",
                    values[number - 1]
                );
            }
            for (wanted, _, optional) in &procedure.parameters {
                let given = arguments.iter().any(|(argument, _)| argument == wanted);
                assert!(given || *optional, "{name} needs {wanted}");
            }
        }
    }

    /// The columns of each result: the statement's own, and those of the procedures that it calls.
    fn results(&self, sql: &str) -> Vec<Vec<String>> {
        let mut results = selects(sql);
        for (name, arguments) in calls(sql) {
            let body = &self.procedures[&name].body;
            let turn = arguments.iter().any(|(argument, _)| argument == "@Turn");
            let mut own = self.results(body);
            // A claim has two ways to answer.
            if name.ends_with("_Claim]") {
                own.swap(0, usize::from(!turn));
                own.truncate(1);
            }
            results.extend(own);
        }
        results
    }
}

/// `    @Keep bit = 1,`
fn parameter(line: &str) -> (String, String, bool) {
    let line = line.trim().trim_end_matches(',');
    let (name, rest) = line.split_once(' ').expect("a type");
    match rest.split_once(" = ") {
        Some((kind, _)) => (name.to_owned(), kind.to_owned(), true),
        None => (name.to_owned(), rest.to_owned(), false),
    }
}

/// Whether a parameter of this number is in the text.
fn uses(sql: &str, number: usize) -> bool {
    let name = format!("@P{number}");
    sql.match_indices(&name)
        .any(|(at, _)| !sql[at + name.len()..].starts_with(|next: char| next.is_ascii_digit()))
}

/// The procedures that a text calls, each with its named arguments.
fn calls(sql: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut calls = Vec::new();
    for (at, _) in sql.match_indices("EXEC ") {
        let call = sql[at + 5..].split(';').next().unwrap_or_default();
        let call = call.split_once("= [").map_or(call, |(_, rest)| {
            if call.starts_with('@') {
                &call[call.len() - rest.len() - 1..]
            } else {
                call
            }
        });
        let mut words = call.splitn(2, char::is_whitespace);
        let name = words.next().unwrap_or_default().to_owned();
        if !name.starts_with('[') {
            continue;
        }
        let arguments = words.next().unwrap_or_default().split(',');
        let arguments = arguments.filter_map(|argument| argument.split_once('='));
        let arguments =
            arguments.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
        calls.push((name, arguments.collect()));
    }
    calls
}

/// The columns of the queries that answer, in a statement or in a procedure's body. One that stands alone
/// answers; one that follows an INSERT, is in parentheses or fills variables does not.
fn selects(sql: &str) -> Vec<Vec<String>> {
    let mut selects = Vec::new();
    let mut alone = true;
    let mut offset = 0;
    for line in sql.split_inclusive('\n') {
        let text = line.trim();
        if alone && text.starts_with("SELECT") {
            let start = offset + line.find("SELECT").unwrap_or_default() + "SELECT".len();
            selects.push(columns(&sql[start..]));
        }
        if !text.is_empty() && !text.starts_with("--") {
            alone = text.ends_with(';')
                || text == "ELSE"
                || text == "BEGIN"
                || text.starts_with("IF @Turn");
        }
        offset += line.len();
    }
    selects.retain(|columns| columns.iter().all(|column| column != "="));
    selects
}

/// What a query returns, by name; a column that is always NULL is called so, and one that fills a variable `=`.
fn columns(query: &str) -> Vec<String> {
    let mut depth = 0;
    let mut column = String::new();
    let mut columns = Vec::new();
    for (at, letter) in query.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        let from = depth == 0
            && letter.is_whitespace()
            && query[at + 1..].trim_start().starts_with("FROM ");
        let option = depth == 0
            && letter.is_whitespace()
            && query[at + 1..].trim_start().starts_with("OPTION ");
        if depth < 0 || from || option || (depth == 0 && letter == ';') {
            break;
        }
        if depth == 0 && letter == ',' {
            columns.push(std::mem::take(&mut column));
        } else {
            column.push(letter);
        }
    }
    columns.push(column);
    columns.iter().map(|column| name(column)).collect()
}

fn name(column: &str) -> String {
    let column = column.trim();
    let variable = column
        .split(' ')
        .next()
        .filter(|word| word.starts_with('@'));
    if variable.is_some_and(|variable| column[variable.len()..].starts_with(" = ")) {
        return "=".to_owned();
    }
    let (value, name) = column.rsplit_once(" AS ").unwrap_or(("", column));
    if value == "NULL" || value.starts_with("CAST(NULL") || value.starts_with("TOP (1) NULL") {
        return "NULL".to_owned();
    }
    let name = name.rsplit(['.', ' ']).next().unwrap_or(name);
    name.trim_matches(['[', ']']).to_owned()
}

/// A row for these columns, or none any more. A lone number is a count: one the first time, then zero.
fn found(columns: &[String], first: bool) -> Vec<Vec<Value>> {
    let has_source = columns.iter().any(|column| column == "Source");
    let is_audit = columns.iter().any(|column| column == "Actor");
    let value = |column: &String| match column.as_str() {
        "NULL" => Value::Int(None),
        "MessageId" if has_source => "text".into(),
        "Id" if is_audit => 1.into(),
        "Id" | "MessageId" | "OwnerToken" | "JoinId" | "SettledId" | "WorkItem" | "Message"
        | "OutboxMessageId" => ID.into(),
        "Operation" => "ack".into(),
        "Source" | "Topic" | "Payload" | "Headers" | "CorrelationId" | "LastError"
        | "ProcessedBy" | "GroupingKey" | "Metadata" | "Actor" | "Action" | "Subject"
        | "Detail" | "Name" | "What" | "State" => "text".into(),
        "Hash" => vec![1_u8].into(),
        _ => 1.into(),
    };
    let row: Vec<Value> = columns.iter().map(value).collect();
    let is_count = matches!(row.as_slice(), [Value::Int(_)]);
    let is_settled = columns.first().is_some_and(|column| column == "Operation");
    if is_count {
        return vec![vec![i64::from(first).into()]];
    }
    // What an ack returns: a message, and the join that it finished.
    if columns.len() == 6 && columns[0] == "Id" && columns[1] == "NULL" {
        let join = vec![
            Value::Int(None),
            ID.into(),
            1.into(),
            1.into(),
            1.into(),
            1.into(),
        ];
        return vec![row, join];
    }
    if first || is_settled {
        vec![row]
    } else {
        Vec::new()
    }
}

fn sql_type(value: &Value) -> &'static str {
    match value {
        Value::Int(_) => "bigint",
        Value::Bytes(_) => "varbinary(max)",
        Value::Uuid(_) => "uniqueidentifier",
        Value::Text(_) | Value::Ints(_) | Value::Texts(_) | Value::Uuids(_) => "nvarchar(max)",
    }
}

/// Whether a value can be given for a parameter of this type.
fn fits(value: &Value, wanted: &str) -> bool {
    let bare = wanted.split('(').next().unwrap_or(wanted);
    match value {
        Value::Int(_) => ["bigint", "int", "bit"].contains(&bare),
        Value::Bytes(_) => bare == "varbinary",
        Value::Uuid(_) => bare == "uniqueidentifier",
        Value::Text(_) => bare == "nvarchar",
        // A list is never cut short.
        Value::Ints(_) | Value::Texts(_) | Value::Uuids(_) => wanted == "nvarchar(max)",
    }
}

impl Database for Pretend {
    fn dialect(&self) -> Dialect {
        Dialect::SqlServer
    }

    fn run(&self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move {
            let [call] = calls.as_slice() else {
                panic!("an operation is one batch");
            };
            self.answer(call)
        })
    }

    fn read(&self, call: Call) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move { self.answer(&call) })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>, Error>> {
        Box::pin(async { Err(ErrorKind::Database.with("not here")) })
    }

    fn apart(&self, _: usize) -> Result<Box<dyn Database>, Error> {
        Ok(Box::new(self.clone()))
    }

    fn prepare(&self, _: Vec<Arc<Script>>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn deploy(&self, _: Plan) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn applied(&self, plan: Plan) -> BoxFuture<'_, Result<Option<Applied>, Error>> {
        Box::pin(async move {
            let all = plan.missing(&[])?.into_iter();
            Ok(Some(
                all.map(|(version, _, checksum, _)| (version, checksum))
                    .collect(),
            ))
        })
    }
}
