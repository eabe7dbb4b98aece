//! The cases: what is run, on which stores, and what ratio is to be reached.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use mysql_async::prelude::Queryable;
use postroom::{Options, Postroom};
use testkit::postgres::{Durability, Server};
use tokio_postgres::{Client, NoTls};

use crate::classic_floor::ClassicFloor;
use crate::contender::{BULK, Contender, DISPATCH_BATCH, dispatch, message};
use crate::daemon::Daemon;
use crate::latency;
use crate::mysql_floor::MySqlFloor;
use crate::postgres_floor::PostgresFloor;
use crate::report::Measured;
use crate::sqlite_floor::SqliteFloor;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
    Mysql,
}

impl Backend {
    /// The names of its cases, in the order in which they run.
    fn cases(self) -> Vec<&'static str> {
        let (floor, others): (&[Case], _) = match self {
            Self::Sqlite => (
                &SQLITE_FLOOR,
                vec![&SQLITE_HTTP, &SQLITE_FULL, &SQLITE_DISPATCH],
            ),
            Self::Postgres => (
                &POSTGRES_FLOOR,
                vec![
                    &POSTGRES_SNAPSHOT,
                    &POSTGRES_FULL,
                    &POSTGRES_HTTP,
                    &DISPATCH,
                    &DISPATCH_CLASSIC,
                    &DISPATCH_DEEP,
                    &DISPATCH_PRODUCERS,
                    &DISPATCH_LATENCY,
                ],
            ),
            Self::Mysql => (&MYSQL_FLOOR, vec![&MYSQL_DISPATCH]),
        };
        floor.iter().chain(others).map(|case| case.name).collect()
    }
}

pub(crate) struct Plan {
    pub(crate) backend: Option<Backend>,
    pub(crate) filter: String,
    pub(crate) rounds: usize,
    pub(crate) size: usize,
}

impl Plan {
    /// Whether a case of this database is to be measured.
    fn wants(&self, backend: Backend) -> bool {
        self.backend.is_none_or(|wanted| wanted == backend)
            && backend
                .cases()
                .iter()
                .any(|name| name.contains(&self.filter))
    }

    fn scaled(&self, messages: usize) -> usize {
        (messages * self.size / 100).max(BULK)
    }
}

#[derive(Clone, Copy)]
enum Work {
    Enqueue { tasks: usize },
    Bulk,
    Drain,
}

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    work: Work,
    messages: usize,
    target: f64,
    /// What else to know of the other side.
    note: Option<&'static str>,
}

const SQLITE_FLOOR: [Case; 4] = [
    Case {
        name: "enqueue, 1 task",
        work: Work::Enqueue { tasks: 1 },
        messages: 1_000,
        target: 0.85,
        note: None,
    },
    Case {
        name: "enqueue, 16 tasks",
        work: Work::Enqueue { tasks: 16 },
        messages: 2_000,
        target: 0.85,
        note: Some("16 writers in turn"),
    },
    Case {
        name: "bulk enqueue",
        work: Work::Bulk,
        messages: 50_000,
        target: 0.8,
        note: None,
    },
    Case {
        name: "claim+ack drain",
        work: Work::Drain,
        messages: 50_000,
        target: 0.8,
        note: None,
    },
];

const SQLITE_HTTP: Case = Case {
    name: "enqueue over HTTP, 64",
    work: Work::Enqueue { tasks: 64 },
    messages: 64_000,
    target: 0.6,
    note: None,
};

const POSTGRES_HTTP: Case = Case {
    messages: 32_000,
    ..SQLITE_HTTP
};

const SQLITE_FULL: Case = Case {
    name: "drain, 1M done kept",
    work: Work::Drain,
    messages: 50_000,
    target: 0.9,
    note: None,
};

const POSTGRES_FLOOR: [Case; 4] = [
    Case {
        name: "enqueue, 1 task",
        work: Work::Enqueue { tasks: 1 },
        messages: 2_000,
        target: 0.85,
        note: None,
    },
    Case {
        name: "enqueue, 16 tasks",
        work: Work::Enqueue { tasks: 16 },
        messages: 16_000,
        target: 0.85,
        note: None,
    },
    Case {
        name: "bulk enqueue",
        work: Work::Bulk,
        messages: 100_000,
        target: 0.8,
        note: None,
    },
    Case {
        name: "claim+ack drain",
        work: Work::Drain,
        messages: 100_000,
        target: 0.8,
        note: None,
    },
];

/// The dispatcher against the same statements, and against a table whose status flips.
const DISPATCH: Case = Case {
    name: "dispatcher drain",
    work: Work::Drain,
    messages: 100_000,
    target: 0.75,
    note: None,
};
const DISPATCH_CLASSIC: Case = Case {
    name: "dispatcher drain, classic",
    target: 0.9,
    ..DISPATCH
};
/// A long queue against a short one.
const DISPATCH_DEEP: Case = Case {
    name: "dispatcher drain, 500k",
    messages: 500_000,
    target: 0.85,
    ..DISPATCH
};
const DEEP_RATIO: usize = 10;
/// The rate of producers while a dispatcher drains what they enqueue.
const DISPATCH_PRODUCERS: Case = Case {
    name: "enqueue, 16, dispatching",
    work: Work::Enqueue { tasks: 16 },
    messages: 32_000,
    target: 0.85,
    note: None,
};
/// One over the median time; 1.5 times the floor's is two thirds.
const DISPATCH_LATENCY: Case = Case {
    name: "idle latency, 1/p50",
    work: Work::Enqueue { tasks: 1 },
    messages: 100,
    target: 0.667,
    note: None,
};
const MYSQL_FLOOR: [Case; 4] = [
    POSTGRES_FLOOR[0],
    POSTGRES_FLOOR[1],
    POSTGRES_FLOOR[2],
    POSTGRES_FLOOR[3],
];
const MYSQL_DISPATCH: Case = DISPATCH;
const SQLITE_DISPATCH: Case = Case {
    messages: 50_000,
    ..DISPATCH
};

const POSTGRES_SNAPSHOT: Case = Case {
    name: "drain, held snapshot",
    work: Work::Drain,
    messages: 100_000,
    target: 0.5,
    note: None,
};

const POSTGRES_FULL: Case = Case {
    name: "drain, 1M done kept",
    work: Work::Drain,
    messages: 100_000,
    target: 0.9,
    note: None,
};

pub(crate) async fn run(plan: &Plan) -> Result<Vec<Measured>> {
    let mut results = Vec::new();
    if plan.wants(Backend::Sqlite) {
        results.extend(sqlite(plan).await?);
    }
    if plan.wants(Backend::Postgres) {
        results.extend(postgres(plan).await?);
    }
    if plan.wants(Backend::Mysql) {
        results.extend(mysql(plan).await?);
    }
    if results.is_empty() {
        let known = [Backend::Sqlite, Backend::Postgres, Backend::Mysql]
            .into_iter()
            .filter(|backend| plan.backend.is_none_or(|wanted| wanted == *backend))
            .map(|backend| format!("\n  {backend:?}: {}", backend.cases().join("; ")))
            .collect::<String>();
        bail!(
            "no case has `{}` in its name; there are:{known}",
            plan.filter
        );
    }
    Ok(results)
}

async fn sqlite(plan: &Plan) -> Result<Vec<Measured>> {
    let folder = tempfile::Builder::new()
        .prefix("postroom-bench-")
        .tempdir_in(".")?;
    let open = async |name: &str| {
        let path = folder.path().join(name);
        let room = Options::new(format!("sqlite:{}", path.display()))
            .dev_profile()
            .connect()
            .await?;
        anyhow::Ok((path, room))
    };
    let (_, ours) = open("ours.db").await?;
    let (path, floor_room) = open("floor.db").await?;
    let (full_path, full) = open("full.db").await?;
    let floor = Contender::SqliteFloor(SqliteFloor::open(path.clone(), &floor_room)?);
    let bench = Bench {
        backend: "sqlite",
        plan,
        wal: None,
    };
    let paths = [folder.path().join("ours.db"), path, full_path];
    let clean = async || {
        for path in &paths {
            let connection = rusqlite::Connection::open(path)?;
            connection.busy_timeout(Duration::from_secs(60))?;
            connection.execute_batch("DELETE FROM outbox; PRAGMA wal_checkpoint(TRUNCATE)")?;
        }
        let connection = rusqlite::Connection::open(&paths[0])?;
        connection.execute_batch("DELETE FROM outbox_done; PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(())
    };
    let dispatcher = Contender::Dispatcher(ours.clone());
    let ours = Contender::Library(ours);
    let mut results = Vec::new();
    for case in &SQLITE_FLOOR {
        results.extend(
            bench
                .compare(case, "raw SQL", &ours, &floor, &clean)
                .await?,
        );
    }
    results.extend(
        bench
            .compare(&SQLITE_DISPATCH, "raw SQL", &dispatcher, &floor, &clean)
            .await?,
    );
    let case = &SQLITE_HTTP;
    if bench.wanted(case) {
        let url = format!("sqlite:{}", paths[0].display());
        let daemon = Contender::Daemon(Daemon::start(&url, None).await?);
        let result = bench.compare(case, "the library", &daemon, &ours, &clean);
        results.extend(result.await?);
    }
    let case = &SQLITE_FULL;
    if bench.wanted(case) {
        fill_sqlite_archive(&paths[2])?;
        let full = Contender::Library(full);
        results.extend(
            bench
                .compare(case, "no done rows", &full, &ours, &clean)
                .await?,
        );
    }
    Ok(results)
}

fn fill_sqlite_archive(path: &std::path::Path) -> Result<()> {
    let connection = rusqlite::Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.execute_batch(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
         INSERT INTO outbox_done (id, message_id, created_at, processed_at, attempt_count, deferral_count,
                                  delivery_count, topic, processed_by, payload)
         SELECT randomblob(16), randomblob(16), i, i, 0, 0, 1, 'bench.topic', 'bench', printf('%0200d', i) FROM n;
         PRAGMA wal_checkpoint(TRUNCATE)",
    )?;
    Ok(())
}

async fn postgres(plan: &Plan) -> Result<Vec<Measured>> {
    let server = Server::start(Durability::On)?;
    let (client, connection) = tokio_postgres::connect(server.url(), NoTls).await?;
    tokio::spawn(connection);
    let open = async |schema: &str| -> Result<Postroom> {
        Ok(Options::new(server.url())
            .schema(schema)
            .dev_profile()
            .connect()
            .await?)
    };
    let (ours, floor, full) = (
        open("ours").await?,
        open("floor").await?,
        open("full").await?,
    );
    let floor = PostgresFloor::open(server.url(), "floor", &floor).await?;
    let statements = (floor.enqueue.clone(), floor.claim.clone());
    let floor = Contender::PostgresFloor(floor);
    let classic = Contender::ClassicFloor(ClassicFloor::open(server.url()).await?);
    let bench = Bench {
        backend: "postgres",
        plan,
        wal: Some(&client),
    };
    let clean = async || {
        client
            .batch_execute("TRUNCATE ours.outbox, floor.outbox, \"full\".outbox, ours.outbox_done, floor.outbox_done, classic; CHECKPOINT")
            .await?;
        Ok(())
    };
    let (room, other) = (ours.clone(), open("ours").await?);
    let dispatcher = Contender::Dispatcher(ours.clone());
    let ours = Contender::Library(ours);
    let mut results = Vec::new();
    for case in &POSTGRES_FLOOR {
        results.extend(
            bench
                .compare(case, "raw SQL", &ours, &floor, &clean)
                .await?,
        );
    }
    for (case, against, theirs) in [
        (&DISPATCH, "raw SQL", &floor),
        (&DISPATCH_CLASSIC, "status flips, raw SQL", &classic),
    ] {
        results.extend(
            bench
                .compare(case, against, &dispatcher, theirs, &clean)
                .await?,
        );
    }
    results.extend(bench.deep(&DISPATCH_DEEP, &dispatcher, &clean).await?);
    results.extend(
        bench
            .while_dispatching(&DISPATCH_PRODUCERS, &ours, &other, &clean)
            .await?,
    );
    let case = &POSTGRES_HTTP;
    if bench.wanted(case) {
        let daemon = Contender::Daemon(Daemon::start(server.url(), Some("ours")).await?);
        let result = bench.compare(case, "the library", &daemon, &ours, &clean);
        results.extend(result.await?);
    }
    let latency = &DISPATCH_LATENCY;
    results.extend(
        bench
            .latency(latency, (&room, &other), server.url(), &statements)
            .await?,
    );
    let case = &POSTGRES_SNAPSHOT;
    results.extend(bench.under_snapshot(case, &ours, &server, &clean).await?);
    let case = &POSTGRES_FULL;
    if bench.wanted(case) {
        client
            .batch_execute(
                "INSERT INTO \"full\".outbox_done (id, message_id, created_at, processed_at, attempt_count,
                     deferral_count, delivery_count, topic, processed_by, payload)
                 SELECT gen_random_uuid(), gen_random_uuid(), now(), now(), 0, 0, 1, 'bench.topic', 'bench', repeat('x', 200)
                 FROM generate_series(1, 1000000); CHECKPOINT",
            )
            .await?;
        let full = Contender::Library(full);
        results.extend(
            bench
                .compare(case, "no done rows", &full, &ours, &clean)
                .await?,
        );
    }
    Ok(results)
}

async fn mysql(plan: &Plan) -> Result<Vec<Measured>> {
    let server = testkit::mysql::Server::start(Durability::On)?;
    let ours_url = testkit::mysql::fresh_database(server.url()).await;
    let floor_url = testkit::mysql::fresh_database(server.url()).await;
    let open = async |url: &str| Options::new(url).dev_profile().connect().await;
    let (ours, floor) = (open(&ours_url).await?, open(&floor_url).await?);
    let floor = Contender::MySqlFloor(MySqlFloor::open(&floor_url, &floor).await?);
    let bench = Bench {
        backend: "mysql",
        plan,
        wal: None,
    };
    let clean = async || {
        for url in [&ours_url, &floor_url] {
            let mut connection = mysql_async::Conn::from_url(url).await?;
            connection
                .query_drop("TRUNCATE TABLE outbox; TRUNCATE TABLE outbox_done")
                .await?;
            connection.disconnect().await?;
        }
        Ok(())
    };
    let dispatcher = Contender::Dispatcher(ours.clone());
    let ours = Contender::Library(ours);
    let mut results = Vec::new();
    for case in &MYSQL_FLOOR {
        let result = bench.compare(case, "raw SQL", &ours, &floor, &clean);
        results.extend(result.await?);
    }
    let result = bench.compare(&MYSQL_DISPATCH, "raw SQL", &dispatcher, &floor, &clean);
    results.extend(result.await?);
    Ok(results)
}

struct Bench<'a> {
    backend: &'static str,
    plan: &'a Plan,
    wal: Option<&'a Client>,
}

/// One run: messages per second, and bytes of write-ahead log per message.
#[derive(Clone, Copy)]
struct Run {
    rate: f64,
    wal: Option<f64>,
}

impl Bench<'_> {
    fn wanted(&self, case: &Case) -> bool {
        case.name.contains(&self.plan.filter)
    }

    /// Runs both sides in turns; who goes first alternates.
    async fn compare(
        &self,
        case: &Case,
        against: &str,
        ours: &Contender,
        theirs: &Contender,
        clean: &impl AsyncFn() -> Result<()>,
    ) -> Result<Option<Measured>> {
        let mut we_go_first = false;
        self.in_rounds(case, against, async |bar| {
            we_go_first = !we_go_first;
            clean().await?;
            if we_go_first {
                let ours = self.once(case, ours).await?;
                bar.inc(1);
                return Ok((ours, self.once(case, theirs).await?));
            }
            let theirs = self.once(case, theirs).await?;
            bar.inc(1);
            Ok((self.once(case, ours).await?, theirs))
        })
        .await
    }

    /// The library with and without a session that holds an old snapshot open.
    async fn under_snapshot(
        &self,
        case: &Case,
        ours: &Contender,
        server: &Server,
        clean: &impl AsyncFn() -> Result<()>,
    ) -> Result<Option<Measured>> {
        self.in_rounds(case, "no held snapshot", async |bar| {
            clean().await?;
            let without = self.once(case, ours).await?;
            bar.inc(1);
            clean().await?;
            let (holder, connection) = tokio_postgres::connect(server.url(), NoTls).await?;
            tokio::spawn(connection);
            holder
                .batch_execute(
                    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ours.outbox",
                )
                .await?;
            let with = self.once(case, ours).await?;
            holder.batch_execute("ROLLBACK").await?;
            Ok((with, without))
        })
        .await
    }

    /// The dispatcher on a long queue and on one a tenth as long.
    async fn deep(
        &self,
        case: &Case,
        dispatcher: &Contender,
        clean: &impl AsyncFn() -> Result<()>,
    ) -> Result<Option<Measured>> {
        let shallow = Case {
            messages: case.messages / DEEP_RATIO,
            ..*case
        };
        self.in_rounds(case, "50k pending", async |bar| {
            clean().await?;
            let shallow = self.once(&shallow, dispatcher).await?;
            bar.inc(1);
            clean().await?;
            Ok((self.once(case, dispatcher).await?, shallow))
        })
        .await
    }

    /// Producers with a dispatcher of another process's connections at work, and without.
    async fn while_dispatching(
        &self,
        case: &Case,
        producers: &Contender,
        other: &Postroom,
        clean: &impl AsyncFn() -> Result<()>,
    ) -> Result<Option<Measured>> {
        self.in_rounds(case, "no dispatcher", async |bar| {
            clean().await?;
            let without = self.once(case, producers).await?;
            bar.inc(1);
            clean().await?;
            let running = dispatch(other, DISPATCH_BATCH)?;
            // It runs when it has handled something: connections and plans are made by then.
            other.outbox().enqueue(&message()).await?;
            while running.report().done == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let with = self.once(case, producers).await?;
            running.stop().await;
            Ok((with, without))
        })
        .await
    }

    /// How long an idle queue takes to hand a message to its handler.
    async fn latency(
        &self,
        case: &Case,
        (producer, consumer): (&Postroom, &Postroom),
        url: &str,
        (enqueue, claim): &(String, String),
    ) -> Result<Option<Measured>> {
        let run = |time: Duration| Run {
            rate: 1.0 / time.as_secs_f64(),
            wal: None,
        };
        self.in_rounds(case, "LISTEN and claim by hand", async |bar| {
            let ours = latency::dispatcher(producer, consumer, case.messages).await?;
            bar.inc(1);
            let floor = latency::floor(url, enqueue, claim, case.messages).await?;
            Ok((run(ours), run(floor)))
        })
        .await
    }

    /// Measures both sides as often as the plan says, if the case is wanted at all. A round moves the bar
    /// between its two halves.
    async fn in_rounds(
        &self,
        case: &Case,
        against: &str,
        mut round: impl AsyncFnMut(&ProgressBar) -> Result<(Run, Run)>,
    ) -> Result<Option<Measured>> {
        if !self.wanted(case) {
            return Ok(None);
        }
        let bar = self.bar(case);
        let mut rounds = Vec::new();
        for _ in 0..self.plan.rounds {
            rounds.push(round(&bar).await?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(Some(self.measured(case, against, &rounds)))
    }

    async fn once(&self, case: &Case, contender: &Contender) -> Result<Run> {
        let messages = self.plan.scaled(case.messages);
        let messages = match case.work {
            Work::Enqueue { tasks } => messages / tasks * tasks,
            Work::Bulk | Work::Drain => messages / BULK * BULK,
        };
        if let Work::Drain = case.work {
            contender.bulk(messages / BULK).await?;
        }
        let before = self.wal_position().await?;
        let started = Instant::now();
        match case.work {
            Work::Enqueue { tasks } => contender.enqueue(tasks, messages / tasks).await?,
            Work::Bulk => contender.bulk(messages / BULK).await?,
            Work::Drain => contender.drain(2, messages).await?,
        }
        let rate = messages as f64 / started.elapsed().as_secs_f64();
        let after = self.wal_position().await?;
        let wal = before
            .zip(after)
            .map(|(before, after)| (after - before) / messages as f64);
        Ok(Run { rate, wal })
    }

    async fn wal_position(&self) -> Result<Option<f64>> {
        let Some(client) = self.wal else {
            return Ok(None);
        };
        let row = client
            .query_one("SELECT (pg_current_wal_lsn() - '0/0')::float8", &[])
            .await?;
        Ok(Some(row.get(0)))
    }

    fn measured(&self, case: &Case, against: &str, rounds: &[(Run, Run)]) -> Measured {
        Measured {
            backend: self.backend,
            case: case.name,
            against: case
                .note
                .map_or_else(|| against.to_owned(), |note| format!("{against}, {note}")),
            ours: median(rounds.iter().map(|(ours, _)| ours.rate)),
            theirs: median(rounds.iter().map(|(_, theirs)| theirs.rate)),
            ratio: median(rounds.iter().map(|(ours, theirs)| ours.rate / theirs.rate)),
            target: case.target,
            wal_bytes_per_message: rounds.first().and_then(|(ours, _)| ours.wal),
        }
    }

    fn bar(&self, case: &Case) -> ProgressBar {
        let style = ProgressStyle::with_template("{msg:<36} {bar:30} {pos}/{len} runs, {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        ProgressBar::new(self.plan.rounds as u64 * 2)
            .with_style(style)
            .with_message(format!("{}: {}", self.backend, case.name))
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
