//! `postroom bench`: how fast is this database? Measured on tables of its own, which go again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use postroom::{Delivery, Dialect, Message, Options, Postroom, client, done, stop_signal};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::store::{self, Place, StoreArguments};
use crate::{leftovers, out, progress, secret, table};

/// Measure how fast this database takes and gives messages, on tables of its own
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom bench                                       an SQLite file in this folder
  postroom bench --url postgres://owner@localhost/shop
  postroom bench --messages 20000 --payload-bytes 4096 --json

Your tables are not touched. On PostgreSQL it works in a schema of its own (postroom_bench_…), on SQLite in \
a file of its own beside yours, and removes them at the end, after Ctrl-C too. It takes a share of the \
machine while it runs: think before you run it beside a live system.")]
pub(crate) struct Arguments {
    /// How many messages to enqueue, by one task and then by 16, and to drain
    #[arg(long, default_value_t = 2_000, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    messages: u64,

    /// How large their payloads are
    #[arg(long, default_value_t = 256, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    payload_bytes: u32,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

/// How many tasks enqueue at once.
const TASKS: u64 = 16;

/// How many messages are sent one by one to see how long each takes.
const SAMPLES: usize = 200;

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let place = self.store.place()?;
        let shown = secret::shown(&place.url);
        // It listens from its first poll on, which has to be before there is anything to clean up.
        let mut stop = std::pin::pin!(stop_signal());
        let _ = futures_util::poll!(stop.as_mut());
        let stage = Stage::set(place).await?;
        let payload = "x".repeat(usize::try_from(self.payload_bytes)?);
        let measured = tokio::select! {
            measured = Measured::take(&stage.room, self.messages, &payload) => measured,
            () = stop => Err(anyhow::anyhow!("interrupted; the tables of the measurement are gone")),
        };
        stage.clear().await?;
        let measured = measured?;
        if self.json {
            out::json(&json!({
                "store": shown,
                "messages": self.messages,
                "payload_bytes": self.payload_bytes,
                "enqueue_1_task_per_second": measured.one_task.round(),
                "enqueue_16_tasks_per_second": measured.many_tasks.round(),
                "drain_per_second": measured.drain.round(),
                "latency_p50_ms": millis(measured.p50),
                "latency_p99_ms": millis(measured.p99),
            }))?;
            return Ok(());
        }
        let per_second = |rate: f64| format!("{rate:.0} messages/s");
        let latency = |latency: Duration| format!("{:.2} ms", millis(latency));
        let rows = [
            ("enqueue, 1 task", per_second(measured.one_task)),
            ("enqueue, 16 tasks", per_second(measured.many_tasks)),
            ("drain by a dispatcher", per_second(measured.drain)),
            ("enqueue to handler, p50", latency(measured.p50)),
            ("enqueue to handler, p99", latency(measured.p99)),
        ];
        let rows = rows.map(|(what, value)| [what.to_owned(), value]);
        table::print(["what", &shown], &rows)?;
        Ok(())
    }
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 100_000.0).round() / 100.0
}

/// Tables that nobody else uses.
struct Stage {
    room: Postroom,
    traces: Traces,
}

/// What has to go at the end.
enum Traces {
    Folder(TempDir),
    Schema {
        client: Box<tokio_postgres::Client>,
        schema: String,
    },
    Tables {
        connection: Box<mysql_async::Conn>,
        prefix: String,
    },
}

impl Stage {
    async fn set(place: Place) -> anyhow::Result<Self> {
        if place.url.starts_with("sqlite:") {
            return Self::set_file(&place.url).await;
        }
        let schema = format!(
            "postroom_bench_{}",
            &uuid::Uuid::new_v4().simple().to_string()[..12]
        );
        let options = place.options.schema(&schema).connections(16);
        // Whoever creates a schema must be able to drop it, so that connection comes first.
        let traces = match options.dialect()? {
            Dialect::MySql => Traces::Tables {
                connection: Box::new(client::mysql(&place.url).await?),
                prefix: schema,
            },
            Dialect::Postgres => Traces::Schema {
                client: Box::new(client::postgres(&place.url).await?),
                schema,
            },
            _ => bail!("the bench runs on SQLite, PostgreSQL, MySQL and MariaDB"),
        };
        Self::deploy(options, &place.url, traces).await
    }

    /// A file beside the one that was named: on the same disk, and the other one stays as it is.
    async fn set_file(url: &str) -> anyhow::Result<Self> {
        let file = store::sqlite_file(url).map(Path::new);
        let folder = file
            .and_then(Path::parent)
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let folder = tempfile::Builder::new()
            .prefix(".postroom-bench-")
            .tempdir_in(folder)
            .with_context(|| format!("{} cannot be written to", folder.display()))?;
        let url = format!("sqlite:{}", folder.path().join("bench.db").display());
        Self::deploy(Options::new(&url), &url, Traces::Folder(folder)).await
    }

    async fn deploy(options: Options, url: &str, traces: Traces) -> anyhow::Result<Self> {
        let deployed = async {
            let room = store::connect(options.worker("postroom-bench"), url).await?;
            room.deploy().await?;
            anyhow::Ok(room)
        };
        match deployed.await {
            Ok(room) => Ok(Self { room, traces }),
            Err(error) => {
                traces.remove().await?;
                Err(error)
            }
        }
    }

    async fn clear(self) -> anyhow::Result<()> {
        drop(self.room);
        self.traces.remove().await
    }
}

impl Traces {
    async fn remove(self) -> anyhow::Result<()> {
        match self {
            Self::Folder(folder) => {
                // Tasks that were cancelled may still hold the file, for a moment.
                for _ in 0..20 {
                    if std::fs::remove_dir_all(folder.path()).is_ok() {
                        return Ok(());
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                let path = folder.path().to_owned();
                folder
                    .close()
                    .with_context(|| format!("{} could not be removed", path.display()))
            }
            Self::Schema { client, schema } => leftovers::drop_schema(&client, &schema).await,
            Self::Tables {
                mut connection,
                prefix,
            } => leftovers::drop_tables(&mut connection, &prefix).await,
        }
    }
}

/// What was measured: messages per second, and times from enqueue to handler.
struct Measured {
    one_task: f64,
    many_tasks: f64,
    drain: f64,
    p50: Duration,
    p99: Duration,
}

impl Measured {
    async fn take(room: &Postroom, messages: u64, payload: &str) -> anyhow::Result<Self> {
        let one_task = enqueue(room, messages, 1, payload).await?;
        let many_tasks = enqueue(room, messages, TASKS, payload).await?;
        let drain = drain(room, 2 * messages).await?;
        let mut latencies = latencies(room, payload).await?;
        latencies.sort_unstable();
        let percentile = |percent: usize| {
            let place = (latencies.len() * percent).div_ceil(100).saturating_sub(1);
            latencies.get(place).copied().unwrap_or_default()
        };
        Ok(Self {
            one_task,
            many_tasks,
            drain,
            p50: percentile(50),
            p99: percentile(99),
        })
    }
}

/// Enqueues so many messages, one transaction each, by so many tasks.
async fn enqueue(room: &Postroom, messages: u64, tasks: u64, payload: &str) -> anyhow::Result<f64> {
    let what = if tasks == 1 {
        "enqueueing, 1 task"
    } else {
        "enqueueing, 16 tasks"
    };
    let bar = progress::bar(what, messages);
    let left = Arc::new(AtomicU64::new(messages));
    let message = Message::new("bench", payload);
    let started = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..tasks {
        let (outbox, message) = (room.outbox(), message.clone());
        let (left, bar) = (Arc::clone(&left), bar.clone());
        running.spawn(async move {
            let take = |left: u64| left.checked_sub(1);
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
            {
                outbox.enqueue(&message).await?;
                bar.inc(1);
            }
            Ok::<(), postroom::Error>(())
        });
    }
    while let Some(task) = running.join_next().await {
        task??;
    }
    bar.finish_and_clear();
    Ok(rate(messages, started))
}

/// Works off everything by a dispatcher whose handlers do nothing.
async fn drain(room: &Postroom, messages: u64) -> anyhow::Result<f64> {
    let bar = progress::bar("draining", messages);
    let seen = bar.clone();
    let dispatcher = room.dispatcher().on("bench", move |_: Delivery| {
        seen.inc(1);
        async { done() }
    });
    let started = Instant::now();
    let report = dispatcher.drain().await?;
    bar.finish_and_clear();
    ensure!(
        report.done >= messages,
        "{messages} messages were enqueued and {} were handled; please report this",
        report.done
    );
    Ok(rate(report.done, started))
}

/// Sends messages one by one to a waiting dispatcher, and measures each until its handler begins.
async fn latencies(room: &Postroom, payload: &str) -> anyhow::Result<Vec<Duration>> {
    let (handled, mut handling) = mpsc::unbounded_channel();
    let running = room
        .dispatcher()
        .on("bench", move |_: Delivery| {
            let _ = handled.send(Instant::now());
            async { done() }
        })
        .start()?;
    let bar = progress::bar("one by one", SAMPLES as u64);
    let message = Message::new("bench", payload);
    let mut latencies = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let sent = Instant::now();
        room.outbox().enqueue(&message).await?;
        let begun = handling
            .recv()
            .await
            .context("the dispatcher has stopped")?;
        latencies.push(begun.saturating_duration_since(sent));
        bar.inc(1);
    }
    bar.finish_and_clear();
    running.stop().await;
    Ok(latencies)
}

fn rate(count: u64, started: Instant) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a rate is no exact number")]
    let count = count as f64;
    count / started.elapsed().as_secs_f64().max(1e-9)
}
