//! What is measured: groups of runs that take turns, so that noise hits all of a group alike.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use testkit::server::Durability;

use crate::contender::{Contender, Sample, Watch, Work};
use crate::goals;
use crate::peers;
use crate::process::Start;
use crate::protocol::Queue;
use crate::side::BULK;

/// The names that rows and goals know contenders by.
pub(crate) const POSTROOM: &str = "postroom";
pub(crate) const BY_HAND: &str = "postroom, claim and ack";
pub(crate) const NO_ARCHIVE: &str = "postroom, nothing kept";
pub(crate) const FLOOR: &str = "raw SQL";
pub(crate) const CLASSIC: &str = "raw SQL, status flips";
pub(crate) const NO_DISPATCHER: &str = "postroom, no dispatcher";
pub(crate) const DAEMON: &str = "postroom's daemon";
/// And workloads.
pub(crate) const ENQUEUE_1: &str = "enqueue, 1 task";
pub(crate) const ENQUEUE_16: &str = "enqueue, 16 tasks";
pub(crate) const ENQUEUE_64: &str = "enqueue, 64 tasks";
pub(crate) const ENQUEUE_DISPATCHING: &str = "enqueue, 16 tasks, dispatching";
pub(crate) const BULK_ENQUEUE: &str = "bulk enqueue";
pub(crate) const DRAIN: &str = "drain";
pub(crate) const DRAIN_SHAPE: &str = "drain 50,000";
pub(crate) const DRAIN_DEEP: &str = "drain 500,000";
pub(crate) const DRAIN_KEPT: &str = "drain 50,000, 1,000,000 done kept";
pub(crate) const DRAIN_JOINS: &str = "drain 50,000, all in joins";
pub(crate) const LATENCY: &str = "idle latency";
pub(crate) const STEADY: &str = "steady state";
pub(crate) const STEADY_SNAPSHOT: &str = "steady state, held snapshot";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Backend {
    Postgres,
    Sqlite,
    Mysql,
}

impl Backend {
    pub(crate) const ALL: [Self; 3] = [Self::Postgres, Self::Sqlite, Self::Mysql];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Sqlite => "SQLite",
            Self::Mysql => "MariaDB",
        }
    }
}

pub(crate) struct Plan {
    pub(crate) backend: Option<Backend>,
    pub(crate) filter: String,
    pub(crate) rounds: usize,
    pub(crate) full: bool,
    pub(crate) peers: bool,
    /// Only what is guarded.
    pub(crate) guard: bool,
    /// Where peers are installed.
    pub(crate) target: PathBuf,
}

impl Plan {
    fn wants(&self, backend: Backend, group: &Group) -> bool {
        let mut names = group.entries.iter().map(|entry| entry.workload);
        names.any(|name| {
            name.contains(&self.filter) && (!self.guard || goals::guards(backend, name))
        })
    }

    /// Messages of a full run, or of a quick one.
    fn messages(&self, full: usize, quick: usize) -> usize {
        if self.full { full } else { quick }
    }
}

/// What one contender came to in one workload.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) backend: Backend,
    pub(crate) workload: String,
    pub(crate) contender: String,
    pub(crate) peer: bool,
    /// One for each round, in order.
    pub(crate) rounds: Vec<Sample>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_run: Option<String>,
}

/// Runs that take turns.
struct Group {
    entries: Vec<Entry>,
    /// What has to lie in a store before.
    archive: Option<(usize, Archive)>,
}

struct Entry {
    workload: &'static str,
    contender: usize,
    /// What the contender is called in this workload, where it has more than one way.
    called: Option<&'static str>,
    work: Work,
}

/// A store's million of messages that are done.
enum Archive {
    Postgres(String),
    Sqlite(PathBuf),
}

impl Archive {
    async fn fill(&self) -> Result<()> {
        match self {
            Self::Postgres(url) => {
                let (client, connection) =
                    tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
                tokio::spawn(connection);
                let fill = include_str!("archive_postgres.sql");
                Ok(client.batch_execute(fill).await?)
            }
            Self::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path)?;
                connection.busy_timeout(Duration::from_secs(60))?;
                Ok(connection.execute_batch(include_str!("archive_sqlite.sql"))?)
            }
        }
    }
}

/// All that is measured on one database.
struct Arena {
    backend: Backend,
    contenders: Vec<Contender>,
    groups: Vec<Group>,
}

impl Arena {
    fn new(backend: Backend) -> Self {
        Self {
            backend,
            contenders: Vec::new(),
            groups: Vec::new(),
        }
    }

    fn add(&mut self, contender: Contender) -> usize {
        self.contenders.push(contender);
        self.contenders.len() - 1
    }

    /// The same workload for each of these.
    fn group(&mut self, workload: &'static str, work: Work, contenders: &[usize]) {
        let entries = contenders.iter().map(|contender| Entry {
            workload,
            contender: *contender,
            called: None,
            work,
        });
        let entries = entries.collect();
        self.entries(entries);
    }

    fn entries(&mut self, entries: Vec<Entry>) {
        self.groups.push(Group {
            entries,
            archive: None,
        });
    }

    async fn run(mut self, plan: &Plan, versions: &mut Vec<String>) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for group in std::mem::take(&mut self.groups) {
            if plan.wants(self.backend, &group) {
                rows.extend(self.measure(plan, &group, versions).await?);
            }
        }
        Ok(rows)
    }

    async fn measure(
        &mut self,
        plan: &Plan,
        group: &Group,
        versions: &mut Vec<String>,
    ) -> Result<Vec<Row>> {
        let entries = &group.entries;
        let mut rows: Vec<Row> = entries.iter().map(|entry| self.row(entry)).collect();
        if let Some((contender, archive)) = &group.archive {
            self.contenders[*contender].ready().await?;
            archive.fill().await?;
        }
        let bar = bar(plan.rounds * entries.len());
        for round in 0..plan.rounds {
            // Who goes first changes from round to round.
            for turn in 0..entries.len() {
                let place = (round + turn) % entries.len();
                let (entry, row) = (&entries[place], &mut rows[place]);
                bar.set_message(format!(
                    "{}: {}: {}",
                    self.backend.name(),
                    entry.workload,
                    row.contender
                ));
                if row.not_run.is_none() {
                    let contender = &mut self.contenders[entry.contender];
                    match take_turn(contender, entry.work, versions).await {
                        Ok(sample) => row.rounds.push(sample),
                        Err(error) if row.peer => row.not_run = Some(format!("{error:#}")),
                        Err(error) => return Err(error.context(bar.message())),
                    }
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        for contender in &mut self.contenders {
            contender.rest().await?;
        }
        Ok(rows)
    }

    fn row(&self, entry: &Entry) -> Row {
        let contender = &self.contenders[entry.contender];
        Row {
            backend: self.backend,
            workload: entry.workload.to_owned(),
            contender: entry
                .called
                .map_or_else(|| contender.name.clone(), str::to_owned),
            peer: contender.peer,
            rounds: Vec::new(),
            not_run: None,
        }
    }
}

async fn take_turn(
    contender: &mut Contender,
    work: Work,
    versions: &mut Vec<String>,
) -> Result<Sample> {
    let version = contender.ready().await?;
    if !versions.contains(&version) {
        versions.push(version);
    }
    contender.measure(work).await
}

/// Measures what the plan asks for.
pub(crate) async fn run(plan: &Plan) -> Result<(Vec<Row>, Vec<String>)> {
    let (mut rows, mut versions) = (Vec::new(), Vec::new());
    let wanted = |backend| plan.backend.is_none_or(|wanted| wanted == backend);
    if wanted(Backend::Postgres) {
        let server = testkit::postgres::Server::start(Durability::On)?;
        let arena = postgres(plan, server.url()).await?;
        rows.extend(arena.run(plan, &mut versions).await?);
    }
    if wanted(Backend::Sqlite) {
        let folder = tempfile::Builder::new()
            .prefix("postroom-bench-")
            .tempdir_in(".")?;
        let arena = sqlite(plan, folder.path())?;
        rows.extend(arena.run(plan, &mut versions).await?);
    }
    if wanted(Backend::Mysql) {
        let server = testkit::mysql::Server::start(Durability::On)?;
        let arena = mysql(plan, &server).await?;
        rows.extend(arena.run(plan, &mut versions).await?);
    }
    if rows.is_empty() {
        bail!("no workload has `{}` in its name", plan.filter);
    }
    Ok((rows, versions))
}

async fn postgres(plan: &Plan, server: &str) -> Result<Arena> {
    let mut arena = Arena::new(Backend::Postgres);
    // Each has a database of its own: what happened there was its doing.
    let fresh = async |name: &str| {
        let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        let create = format!("CREATE DATABASE bench_{name}");
        client.batch_execute(&create).await?;
        let (place, _) = server.rsplit_once('/').context("a URL with a database")?;
        let url = format!("{place}/bench_{name}");
        anyhow::Ok((Some(Watch::open(&url).await?), url))
    };
    let side = async |name: &str, database: &str, arguments: &[&str]| {
        let (watch, url) = fresh(database).await?;
        let start = Start::side(&[&[arguments[0], &url], &arguments[1..]].concat())?;
        anyhow::Ok((Contender::new(name, start, watch), url))
    };
    let schema = ["--schema", "bench"];
    let of = |kind| [&[kind], &schema[..]].concat();
    let (contender, _) = side(FLOOR, "floor", &of("floor")).await?;
    let floor = arena.add(contender);
    let (contender, _) = side(CLASSIC, "classic", &["classic"]).await?;
    let classic = arena.add(contender);
    let (contender, url) = side(POSTROOM, "ours", &of("postroom")).await?;
    let ours = arena.add(contender);
    let start = Start::side(&["daemon", &url, "--schema", "bench"])?;
    let daemon = arena.add(Contender::new(DAEMON, start, None));
    let no_archive = [&of("postroom")[..], &["--no-archive"]].concat();
    let (contender, _) = side(NO_ARCHIVE, "no_archive", &no_archive).await?;
    let no_archive = arena.add(contender);
    let kept = [&of("postroom")[..], &["--keep-done"]].concat();
    let (contender, kept_url) = side(POSTROOM, "kept", &kept).await?;
    let kept = arena.add(contender);
    let mut fleets = Vec::new();
    for stores in ["1", "10", "100"] {
        let fleet = [&of("postroom")[..], &["--stores", stores]].concat();
        let name = format!("stores_{stores}");
        let (contender, _) = side(POSTROOM, &name, &fleet).await?;
        fleets.push(arena.add(contender));
    }
    let mut others = Vec::new();
    if plan.peers {
        for (number, peer) in peers::install(&plan.target).into_iter().enumerate() {
            let (watch, url) = fresh(&format!("peer_{number}")).await?;
            let start = peer.start.map(|mut start| {
                start.arguments.push(url.into());
                start
            });
            others.push(arena.add(Contender::peer(peer.name, start, watch)));
        }
    }
    let with_peers = |sides: &[usize]| [sides, &others].concat();

    let work = Work::enqueue(1, 6_000);
    arena.group(ENQUEUE_1, work, &with_peers(&[floor, ours]));
    let work = Work::enqueue(16, plan.messages(32_000, 8_000));
    arena.group(ENQUEUE_16, work, &with_peers(&[floor, ours]));
    let messages = plan.messages(100_000, 50_000);
    arena.group(
        BULK_ENQUEUE,
        Work::Fill { messages },
        &with_peers(&[floor, ours]),
    );
    arena.entries(drains(plan, (floor, ours), &[no_archive, classic], &others));
    let samples = plan.messages(200, 50);
    arena.group(
        LATENCY,
        Work::Latency { samples },
        &with_peers(&[floor, ours]),
    );
    arena.entries(steady(plan, ours, &others));
    arena.entries(dispatching(plan, ours));
    let work = Work::enqueue(64, plan.messages(64_000, 32_000));
    arena.group(ENQUEUE_64, work, &[ours, daemon]);
    arena.groups.push(Group {
        entries: shapes(plan, ours, kept),
        archive: plan.full.then_some((kept, Archive::Postgres(kept_url))),
    });
    let messages = plan.messages(32_000, 16_000);
    arena.entries(inbox(ours, messages));
    arena.entries(together(plan, ours));
    for (workload, fleet) in ["drain, 1 store", "drain, 10 stores", "drain, 100 stores"]
        .into_iter()
        .zip(fleets)
    {
        let work = Work::drain(plan.messages(100_000, 50_000));
        arena.group(workload, work, &[fleet]);
    }
    Ok(arena)
}

fn sqlite(plan: &Plan, folder: &Path) -> Result<Arena> {
    let mut arena = Arena::new(Backend::Sqlite);
    let path = |name: &str| folder.join(name);
    let url = |name: &str| format!("sqlite:{}", path(name).display());
    let start = Start::side(&["floor", &url("floor.db")])?;
    let floor = arena.add(Contender::new(FLOOR, start, None));
    let start = Start::side(&["postroom", &url("ours.db")])?;
    let ours = arena.add(Contender::new(POSTROOM, start, None));
    let start = Start::side(&["daemon", &url("ours.db")])?;
    let daemon = arena.add(Contender::new(DAEMON, start, None));
    let start = Start::side(&["postroom", &url("kept.db"), "--keep-done"])?;
    let kept = arena.add(Contender::new(POSTROOM, start, None));

    let work = Work::enqueue(1, plan.messages(2_000, 1_000));
    arena.group(ENQUEUE_1, work, &[floor, ours]);
    let messages = plan.messages(64_000, 32_000);
    let mut entries = vec![
        entry(ENQUEUE_64, ours, Work::enqueue(64, messages)),
        // Writers in turn, each with a commit of its own, are slow: less will do.
        entry(ENQUEUE_64, floor, Work::enqueue(64, messages / 20)),
    ];
    if !plan.guard {
        entries.push(entry(ENQUEUE_64, daemon, Work::enqueue(64, messages)));
    }
    arena.entries(entries);
    let messages = plan.messages(100_000, 50_000);
    arena.group(BULK_ENQUEUE, Work::Fill { messages }, &[floor, ours]);
    arena.entries(drains(plan, (floor, ours), &[], &[]));
    arena.groups.push(Group {
        entries: shapes(plan, ours, kept),
        archive: plan.full.then(|| (kept, Archive::Sqlite(path("kept.db")))),
    });
    arena.entries(inbox(ours, plan.messages(32_000, 16_000)));
    Ok(arena)
}

async fn mysql(plan: &Plan, server: &testkit::mysql::Server) -> Result<Arena> {
    let mut arena = Arena::new(Backend::Mysql);
    let mut side = async |kind: &str, name: &str| {
        let url = testkit::mysql::fresh_database(server.url()).await;
        let start = Start::side(&[kind, &url])?;
        anyhow::Ok(arena.add(Contender::new(name, start, None)))
    };
    let floor = side("floor", FLOOR).await?;
    let ours = side("postroom", POSTROOM).await?;
    let work = Work::enqueue(1, plan.messages(2_000, 1_000));
    arena.group(ENQUEUE_1, work, &[floor, ours]);
    let work = Work::enqueue(16, plan.messages(16_000, 8_000));
    arena.group(ENQUEUE_16, work, &[floor, ours]);
    let messages = plan.messages(100_000, 50_000);
    arena.group(BULK_ENQUEUE, Work::Fill { messages }, &[floor, ours]);
    arena.entries(drains(plan, (floor, ours), &[], &[]));
    arena.entries(inbox(ours, plan.messages(16_000, 8_000)));
    Ok(arena)
}

fn entry(workload: &'static str, contender: usize, work: Work) -> Entry {
    Entry {
        workload,
        contender,
        called: None,
        work,
    }
}

/// The dispatcher and calls by hand against the same statements, and against other queues.
fn drains(
    plan: &Plan,
    (floor, ours): (usize, usize),
    beside: &[usize],
    peers: &[usize],
) -> Vec<Entry> {
    let messages = plan.messages(100_000, 50_000);
    let by_hand = Work::Drain {
        messages,
        queue: Queue::Outbox,
        by_hand: true,
        joins: false,
        processes: 1,
    };
    let mut entries: Vec<Entry> = [floor, ours]
        .into_iter()
        .chain(beside.iter().copied())
        .map(|side| entry(DRAIN, side, Work::drain(messages)))
        .collect();
    entries.push(Entry {
        called: Some(BY_HAND),
        ..entry(DRAIN, ours, by_hand)
    });
    entries.extend(
        peers
            .iter()
            .map(|peer| entry(DRAIN, *peer, Work::drain(messages))),
    );
    entries
}

/// The same queue as it grows: long, with much that is done, with every message in a join.
fn shapes(plan: &Plan, ours: usize, kept: usize) -> Vec<Entry> {
    let joins = Work::Drain {
        messages: 50_000,
        queue: Queue::Outbox,
        by_hand: false,
        joins: true,
        processes: 1,
    };
    let mut entries = vec![
        entry(DRAIN_SHAPE, ours, Work::drain(50_000)),
        entry(DRAIN_JOINS, ours, joins),
    ];
    if plan.full {
        entries.push(entry(DRAIN_DEEP, ours, Work::drain(500_000)));
        entries.push(entry(DRAIN_KEPT, kept, Work::drain(50_000)));
    }
    entries
}

fn steady(plan: &Plan, ours: usize, peers: &[usize]) -> Vec<Entry> {
    let seconds = if plan.full { 30 } else { 5 };
    let work = |snapshot| Work::Steady { seconds, snapshot };
    let mut entries = vec![
        entry(STEADY, ours, work(false)),
        entry(STEADY_SNAPSHOT, ours, work(true)),
    ];
    for peer in peers {
        entries.push(entry(STEADY, *peer, work(false)));
        entries.push(entry(STEADY_SNAPSHOT, *peer, work(true)));
    }
    entries
}

/// Producers alone, and beside a dispatcher that takes what they bring.
fn dispatching(plan: &Plan, ours: usize) -> Vec<Entry> {
    let work = |dispatching| Work::Enqueue {
        tasks: 16,
        messages: plan.messages(32_000, 16_000),
        queue: Queue::Outbox,
        dispatching,
    };
    vec![
        Entry {
            called: Some(NO_DISPATCHER),
            ..entry(ENQUEUE_DISPATCHING, ours, work(false))
        },
        entry(ENQUEUE_DISPATCHING, ours, work(true)),
    ]
}

fn inbox(ours: usize, messages: usize) -> Vec<Entry> {
    let enqueue = Work::Enqueue {
        tasks: 16,
        messages,
        queue: Queue::Inbox,
        dispatching: false,
    };
    let drain = Work::Drain {
        messages,
        queue: Queue::Inbox,
        by_hand: false,
        joins: false,
        processes: 1,
    };
    vec![
        entry("inbox enqueue, 16 tasks", ours, enqueue),
        entry("inbox drain", ours, drain),
    ]
}

/// Dispatchers in one, two and four processes on one store.
fn together(plan: &Plan, ours: usize) -> Vec<Entry> {
    let work = |processes| Work::Drain {
        messages: plan.messages(200_000, 50_000) / BULK * BULK,
        queue: Queue::Outbox,
        by_hand: false,
        joins: false,
        processes,
    };
    vec![
        entry("drain, 1 process", ours, work(1)),
        entry("drain, 2 processes", ours, work(2)),
        entry("drain, 4 processes", ours, work(4)),
    ]
}

fn bar(runs: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} runs, {elapsed}  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(runs as u64).with_style(style)
}
