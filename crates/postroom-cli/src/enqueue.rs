//! `postroom enqueue`: put messages into the outbox, one or many.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use clap::Args;
use postroom::{ErrorKind, JoinId, Message, MessageId, Once, Outbox, Receipt};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::config::nearest;
use crate::refused::because;
use crate::store::StoreArguments;
use crate::{age, out, progress};

/// Put a message into the outbox, or many
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom enqueue order.created '{\"id\":7}' --correlation req-42
  postroom enqueue order.created --file order.json --header content-type=application/json
  generate-report | postroom enqueue report.ready -
  postroom enqueue reminder.due '{\"id\":7}' --due-in 24h
  postroom enqueue order.created '{\"id\":7}' --key order-7    twice: the second changes nothing
  postroom enqueue --json-lines < messages.jsonl

With --json-lines, each line of stdin is an object with topic, payload (text, or any JSON), and perhaps \
correlation_id, headers, due_at, delay, message_id, join_id and idempotency_key; TOPIC stands in where a \
line has none. Lines are committed 500 at a time. At the first line that is not right it stops: what came \
before was enqueued, nothing from that line on was, and the exit code is 1.")]
pub(crate) struct Arguments {
    /// Which handlers the message is for
    #[arg(required_unless_present = "json_lines")]
    topic: Option<String>,

    /// The payload: any text; `-` reads it from stdin
    #[arg(
        allow_negative_numbers = true,
        required_unless_present_any = ["file", "json_lines"],
        conflicts_with_all = ["file", "json_lines"]
    )]
    payload: Option<String>,

    /// Read the payload from this file
    #[arg(long, value_name = "FILE", conflicts_with = "json_lines")]
    file: Option<PathBuf>,

    /// What ties messages together, or to a request
    #[arg(long, value_name = "ID", conflicts_with = "json_lines")]
    correlation: Option<String>,

    /// A small fact about the message; may be given several times
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header, conflicts_with = "json_lines")]
    headers: Vec<(String, String)>,

    /// Hold the message back for so long: 90s, 15m, 36h, 7d
    #[arg(long, value_name = "AGE", value_parser = age::parse, conflicts_with_all = ["due_at", "json_lines"])]
    due_in: Option<Duration>,

    /// Hold the message back until then, such as 2030-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = age::parse_stamp, conflicts_with = "json_lines")]
    due_at: Option<SystemTime>,

    /// An idempotency key: doing it again with the same key and message enqueues nothing more. A time
    /// counted from now makes it another message: give --due-at instead of --due-in
    #[arg(long, conflicts_with = "json_lines")]
    key: Option<String>,

    /// Make the message a step of this join; may be given several times
    #[arg(long = "join", value_name = "ID", conflicts_with = "json_lines")]
    joins: Vec<JoinId>,

    /// Read many messages from stdin, one JSON object on each line
    #[arg(long)]
    json_lines: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        if self.json_lines {
            return self.enqueue_lines().await;
        }
        let message = self.message()?;
        let outbox = self.store.open().await?.outbox();
        let enqueued = match &self.key {
            None => Once::New(outbox.enqueue(&message).await?),
            Some(key) => outbox.enqueue_once(key, &message).await?,
        };
        let (receipt, is_new) = match enqueued {
            Once::New(receipt) => (receipt, true),
            Once::Again(receipt) => (receipt, false),
        };
        let Receipt {
            work_item_id: id,
            message_id,
        } = receipt;
        if self.json {
            out::json(&json!({
                "id": id.to_string(),
                "message_id": message_id.to_string(),
                "new": is_new,
            }))?;
        } else if is_new {
            out::line(format_args!("enqueued {id}"))?;
        } else {
            out::line(format_args!("enqueued before, under the same key: {id}"))?;
        }
        Ok(())
    }

    fn message(&self) -> anyhow::Result<Message> {
        let topic = self.topic.as_deref().unwrap_or_default();
        let mut message = Message::new(topic, self.read_payload()?);
        if let Some(correlation) = &self.correlation {
            message = message.correlation(correlation);
        }
        for (name, value) in &self.headers {
            message = message.header(name, value);
        }
        let due_in = self.due_in.map(age::from_now).transpose();
        let due_in = due_in.map_err(|error| anyhow::anyhow!("--due-in: {error}"))?;
        if let Some(due) = self.due_at.or(due_in) {
            message = message.due_at(due);
        }
        for join in &self.joins {
            message = message.join(*join);
        }
        Ok(message)
    }

    fn read_payload(&self) -> anyhow::Result<String> {
        match (&self.file, self.payload.as_deref()) {
            (Some(file), _) => std::fs::read_to_string(file)
                .with_context(|| format!("{} cannot be read as UTF-8 text", file.display())),
            (None, Some("-")) => {
                let mut payload = String::new();
                std::io::stdin()
                    .lock()
                    .read_to_string(&mut payload)
                    .context("stdin cannot be read as UTF-8 text")?;
                Ok(payload)
            }
            (None, payload) => Ok(payload.unwrap_or_default().to_owned()),
        }
    }

    /// Enqueues what stdin holds, batch by batch, and tells how far it came even if it stops early.
    async fn enqueue_lines(&self) -> anyhow::Result<()> {
        let outbox = self.store.open().await?.outbox();
        let mut sent = Sent::default();
        let spinner = progress::spinner("enqueueing");
        let result = self.send_lines(&outbox, &mut sent, &spinner).await;
        spinner.finish_and_clear();
        if self.json {
            out::json(&json!({ "enqueued": sent.new, "enqueued_before": sent.before }))?;
        } else {
            let mut told = format!("enqueued {}", out::counted(sent.new, "message"));
            if sent.before > 0 {
                told += &format!(", {} had been enqueued before", sent.before);
            }
            out::line(told)?;
        }
        result
    }

    async fn send_lines(
        &self,
        outbox: &Outbox,
        sent: &mut Sent,
        spinner: &indicatif::ProgressBar,
    ) -> anyhow::Result<()> {
        const BATCH: usize = 500;
        let mut batch = Vec::with_capacity(BATCH);
        let mut stopped = None;
        for (number, line) in (1_u64..).zip(std::io::stdin().lock().lines()) {
            match self.read_line(outbox, number, line) {
                Ok(None) => {}
                Ok(Some(line)) => batch.push(line),
                Err(error) => {
                    stopped = Some(error.context(not_right(number)));
                    break;
                }
            }
            if batch.len() == BATCH {
                sent.send(outbox, std::mem::take(&mut batch)).await?;
                spinner.set_position(sent.new);
            }
        }
        sent.send(outbox, batch).await?;
        stopped.map_or(Ok(()), Err)
    }

    /// A message from a line, checked; `None` for an empty line.
    fn read_line(
        &self,
        outbox: &Outbox,
        number: u64,
        line: std::io::Result<String>,
    ) -> anyhow::Result<Option<Line>> {
        let line = line.context("it cannot be read as UTF-8 text")?;
        if line.trim().is_empty() {
            return Ok(None);
        }
        let line = Fields::parse(&line)?.line(number, self.topic.as_deref())?;
        // A batch is refused as a whole, so each message is checked while its line is known.
        outbox.statements(&line.message)?;
        Ok(Some(line))
    }
}

fn not_right(number: u64) -> String {
    format!("line {number} is not right; nothing from it on was enqueued")
}

/// A message of a line.
struct Line {
    number: u64,
    message: Message,
    key: Option<String>,
}

/// How many messages have been committed.
#[derive(Default)]
struct Sent {
    new: u64,
    before: u64,
}

impl Sent {
    /// Sends what has gathered, in order: those without a key in one transaction as far as they stand
    /// together, those with one by one.
    async fn send(&mut self, outbox: &Outbox, batch: Vec<Line>) -> anyhow::Result<()> {
        for lines in batch.chunk_by(|one, next| one.key.is_none() && next.key.is_none()) {
            match lines {
                [line @ Line { key: Some(key), .. }] => {
                    let enqueued = outbox.enqueue_once(key, &line.message).await;
                    match enqueued.map_err(|error| line.refused(error))? {
                        Once::New(_) => self.new += 1,
                        Once::Again(_) => self.before += 1,
                    }
                }
                lines => self.send_together(outbox, lines).await?,
            }
        }
        Ok(())
    }

    /// What the database refuses only when it is written, such as a join that is not there, fails a
    /// transaction as a whole: then each line is sent alone, up to the one at fault.
    async fn send_together(&mut self, outbox: &Outbox, lines: &[Line]) -> anyhow::Result<()> {
        let messages: Vec<Message> = lines.iter().map(|line| line.message.clone()).collect();
        match outbox.enqueue_many(&messages).await {
            Ok(receipts) => self.new += receipts.len() as u64,
            Err(error) if error.is_transient() => return Err(unknown(lines, error)),
            Err(_) => {
                for line in lines {
                    let enqueued = outbox.enqueue(&line.message).await;
                    enqueued.map_err(|error| line.refused(error))?;
                    self.new += 1;
                }
            }
        }
        Ok(())
    }
}

/// The database went away while these lines were sent.
fn unknown(lines: &[Line], error: postroom::Error) -> anyhow::Error {
    let number = |line: Option<&Line>| line.map_or(0, |line| line.number);
    let (first, last) = (number(lines.first()), number(lines.last()));
    anyhow::Error::from(error).context(format!(
        "nobody knows whether the lines {first} to {last} were enqueued; nothing after them was"
    ))
}

impl Line {
    fn refused(&self, error: postroom::Error) -> anyhow::Error {
        match error.kind() {
            _ if error.is_transient() => unknown(std::slice::from_ref(self), error),
            ErrorKind::Conflict { .. } => anyhow::anyhow!(
                "its idempotency_key stands for another message; use another key, or send that message"
            )
            .context(not_right(self.number)),
            _ => anyhow::Error::from(error).context(not_right(self.number)),
        }
    }
}

/// A line as it is written: the fields that the HTTP API takes, and the key that it takes as a header.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    topic: Option<String>,
    payload: Value,
    correlation_id: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    due_at: Option<String>,
    delay: Option<String>,
    message_id: Option<String>,
    join_id: Option<String>,
    idempotency_key: Option<String>,
}

/// The names of all fields.
const FIELDS: [&str; 9] = [
    "payload",
    "topic",
    "correlation_id",
    "headers",
    "due_at",
    "delay",
    "message_id",
    "join_id",
    "idempotency_key",
];

impl Fields {
    fn parse(line: &str) -> anyhow::Result<Self> {
        // Serde would take an array for a struct, field by field.
        ensure!(
            line.trim_start().starts_with('{'),
            "expected one JSON object"
        );
        serde_json::from_str(line).map_err(|_| Self::why_not(line))
    }

    /// Reads a line that is known to be wrong once more, to find out where. Neither values nor unknown names
    /// are quoted: whoever sends payloads where messages should be does not want to see them here.
    fn why_not(line: &str) -> anyhow::Error {
        let mut json = serde_json::Deserializer::from_str(line);
        match serde_path_to_error::deserialize::<_, Self>(&mut json) {
            Err(error) if error.inner().is_data() => {
                let said = error.inner().to_string();
                match because(&error.path().to_string(), &said) {
                    (Some(field), detail) if FIELDS.contains(&outermost(&field)) => {
                        anyhow::anyhow!("{}: {detail}", outermost(&field))
                    }
                    (Some(field), _) => match nearest(&field, FIELDS.into_iter()) {
                        Some(nearest) => anyhow::anyhow!(
                            "a field at column {} is unknown; did you mean `{nearest}`?",
                            error.inner().column()
                        ),
                        None => anyhow::anyhow!(
                            "a field at column {} is unknown; expected an object with payload, and perhaps {}",
                            error.inner().column(),
                            FIELDS[1..].join(", ")
                        ),
                    },
                    (None, detail) => anyhow::anyhow!(detail),
                }
            }
            Err(error) => anyhow::anyhow!(
                "expected one JSON object, and it breaks at column {}",
                error.inner().column()
            ),
            Ok(_) => anyhow::anyhow!("expected one JSON object, and nothing after it"),
        }
    }

    fn line(self, number: u64, topic: Option<&str>) -> anyhow::Result<Line> {
        let Some(topic) = self.topic.as_deref().or(topic) else {
            bail!("it has no topic, and no TOPIC was given");
        };
        let payload = match self.payload {
            Value::String(text) => text,
            json => json.to_string(),
        };
        let mut message = Message::new(topic, payload);
        if let Some(correlation) = self.correlation_id {
            message = message.correlation(correlation);
        }
        for (name, value) in self.headers {
            message = message.header(name, value);
        }
        let due = match (&self.due_at, &self.delay) {
            (Some(_), Some(_)) => bail!("give due_at or delay, not both"),
            (Some(time), None) => {
                Some(age::parse_stamp(time).map_err(|error| anyhow::anyhow!("due_at: {error}"))?)
            }
            (None, Some(delay)) => {
                let delay = age::parse(delay).map_err(|error| anyhow::anyhow!("delay: {error}"))?;
                Some(age::from_now(delay).map_err(|error| anyhow::anyhow!("delay: {error}"))?)
            }
            (None, None) => None,
        };
        if let Some(due) = due {
            message = message.due_at(due);
        }
        if let Some(id) = &self.message_id {
            message = message.message_id(MessageId::from_uuid(uuid("message_id", id)?));
        }
        if let Some(join) = &self.join_id {
            message = message.join(JoinId::from_uuid(uuid("join_id", join)?));
        }
        Ok(Line {
            number,
            message,
            key: self.idempotency_key,
        })
    }
}

/// The field that a path such as `headers.a` begins with.
fn outermost(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

fn uuid(field: &str, text: &str) -> anyhow::Result<Uuid> {
    text.parse()
        .map_err(|_| anyhow::anyhow!("{field}: expected a UUID"))
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE, such as content-type=application/json".to_owned()),
    }
}
