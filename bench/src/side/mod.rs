//! A contender's side: a process that answers the driver's requests one after the other.

pub(crate) mod classic_floor;
pub(crate) mod daemon;
pub(crate) mod latency;
pub(crate) mod library;
pub(crate) mod mysql_floor;
pub(crate) mod postgres_floor;
pub(crate) mod sqlite_floor;

use std::future::Future;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use postroom::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use uuid::Uuid;

use crate::protocol::{Answer, Ready, Request};

/// How many tasks drain a floor.
const DRAINERS: usize = 2;
/// How many messages a bulk statement and a claim carry.
pub(crate) const BULK: usize = 1_000;
pub(crate) const BATCH: usize = 1_000;
pub(crate) const LEASE: Duration = Duration::from_secs(60);
pub(crate) const TOPIC: &str = "bench.topic";
/// How long every payload is.
const PAYLOAD: usize = 200;
/// Delays that an answer may carry.
const MOST_DELAYS: usize = 20_000;

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// postroom as a library.
    Postroom,
    /// postroom's daemon, over HTTP.
    Daemon,
    /// postroom's own statements, by hand.
    Floor,
    /// A table whose status flips, by hand.
    Classic,
}

/// A process that is a contender.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    kind: Kind,
    /// The database.
    url: String,
    /// The schema, where the database has schemas.
    #[arg(long)]
    schema: Option<String>,
    /// A fleet of that many stores instead of one.
    #[arg(long)]
    stores: Option<usize>,
    /// Leave what is done where it is when the store is cleaned.
    #[arg(long)]
    keep_done: bool,
    /// Delete messages when they are done, instead of keeping them.
    #[arg(long)]
    no_archive: bool,
}

/// Answers one request.
pub(crate) trait Side {
    async fn answer(&mut self, request: Request) -> Result<Answer>;
}

/// A floor does the same few things on every database.
pub(crate) trait Floor {
    async fn clean(&self) -> Result<()>;
    async fn enqueue(&self, tasks: usize, per_task: usize) -> Result<()>;
    /// One task enqueues in batches of [`BULK`].
    async fn bulk(&self, batches: usize) -> Result<()>;
    /// Two tasks claim and ack until nothing is left.
    async fn drain(&self) -> Result<()>;
    async fn latency(&self, _samples: usize) -> Result<Answer> {
        not_measured()
    }
}

impl<F: Floor> Side for F {
    async fn answer(&mut self, request: Request) -> Result<Answer> {
        match request {
            Request::Clean => timed(0, self.clean()).await,
            Request::Enqueue { tasks, each, .. } => {
                timed(tasks * each, self.enqueue(tasks, each)).await
            }
            Request::Fill { messages, .. } => timed(messages, self.bulk(messages / BULK)).await,
            Request::Drain { messages, .. } => timed(messages, self.drain()).await,
            Request::Latency { samples } => self.latency(samples).await,
            _ => not_measured(),
        }
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let Arguments {
        kind, url, schema, ..
    } = &arguments;
    let (url, schema) = (url.as_str(), schema.as_deref());
    match kind {
        Kind::Postroom => serve(library::Library::open(url, schema, &arguments).await?).await,
        Kind::Daemon => serve(daemon::Daemon::start(url, schema).await?).await,
        Kind::Classic => serve(classic_floor::ClassicFloor::open(url).await?).await,
        Kind::Floor => match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") => serve(sqlite_floor::SqliteFloor::open(url).await?).await,
            Some("mysql") => serve(mysql_floor::MySqlFloor::open(url).await?).await,
            _ => {
                let schema = schema.context("a schema")?;
                serve(postgres_floor::PostgresFloor::open(url, schema).await?).await
            }
        },
    }
}

async fn serve(mut side: impl Side) -> Result<()> {
    let mut out = tokio::io::stdout();
    let ready = Ready {
        ready: format!("postroom {}", env!("CARGO_PKG_VERSION")),
    };
    let mut line = serde_json::to_string(&ready)?;
    let mut requests = BufReader::new(tokio::io::stdin()).lines();
    loop {
        line.push('\n');
        out.write_all(line.as_bytes()).await?;
        out.flush().await?;
        let Some(request) = requests.next_line().await? else {
            return Ok(());
        };
        let answer = side.answer(serde_json::from_str(&request)?).await;
        let answer = answer.unwrap_or_else(|error| Answer {
            error: Some(format!("{error:#}")),
            ..Answer::default()
        });
        line = serde_json::to_string(&answer)?;
    }
}

/// What a side says to a request that it has nothing for.
fn not_measured<T>() -> Result<T> {
    bail!("not measured")
}

/// Does it, and says how long it took.
async fn timed(messages: usize, work: impl Future<Output = Result<()>>) -> Result<Answer> {
    let started = Instant::now();
    work.await?;
    Ok(Answer {
        messages,
        seconds: started.elapsed().as_secs_f64(),
        ..Answer::default()
    })
}

/// JSON of 200 bytes that says when it was made.
fn payload() -> String {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let mut payload = format!(r#"{{"at":{},"text":""#, now.as_micros());
    payload.extend(std::iter::repeat_n('x', PAYLOAD - 2 - payload.len()));
    payload.push_str("\"}");
    payload
}

/// A message as the statement of an enqueue takes it.
fn row() -> [Value; 7] {
    let id = Uuid::now_v7();
    [
        id.into(),
        id.into(),
        TOPIC.into(),
        payload().into(),
        Value::Text(None),
        "bench".into(),
        Value::Int(None),
    ]
}

/// How long ago a payload was made, in seconds.
fn age(payload: &str) -> Option<f64> {
    let digits = payload.strip_prefix(r#"{"at":"#)?.split(',').next()?;
    let made = Duration::from_micros(digits.parse().ok()?);
    let now = SystemTime::UNIX_EPOCH.elapsed().ok()?;
    Some(now.saturating_sub(made).as_secs_f64())
}

/// As many as an answer may carry, evenly taken.
fn thinned(delays: Vec<f64>) -> Vec<f64> {
    let step = delays.len().div_ceil(MOST_DELAYS).max(1);
    delays.into_iter().step_by(step).collect()
}

async fn all(work: impl Iterator<Item = tokio::task::JoinHandle<Result<()>>>) -> Result<()> {
    let work: Vec<_> = work.collect();
    for task in work {
        task.await??;
    }
    Ok(())
}
