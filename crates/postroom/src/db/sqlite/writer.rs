//! The one writing connection, and how its callers share it.
//!
//! A lone caller runs on the spot: a hop to another thread would cost as much as a quick commit, and
//! there is nobody whom its wait for the disk could hold up. When several come at once, a thread takes all that are waiting into one transaction (group
//! commit): a hundred callers pay for one fsync. Each call then runs in a savepoint, so that one that
//! fails undoes only itself, and nobody gets an answer before the commit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::statements::{database_error, run_calls};
use super::{Job, start, stopped, wait_for_other_writers};
use crate::db::Output;
use crate::error::{Error, ErrorKind};
use crate::sql::Call;

/// How many callers share one commit at most.
const GROUP_LIMIT: usize = 1024;

/// A transaction that takes longer must not hold up a caller's executor: the next ones go to the
/// thread, for a while.
const QUICK: Duration = Duration::from_millis(2);
const AFTER_A_SLOW_ONE: Duration = Duration::from_millis(25);

pub(super) struct Writer {
    desk: Arc<Mutex<Desk>>,
    jobs: mpsc::Sender<Job>,
    callers: Callers,
}

/// What whoever writes needs.
struct Desk {
    connection: Connection,
    others: OtherWriters,
    slow_until: Option<Instant>,
}

impl Writer {
    pub(super) fn start(connection: Connection) -> Result<Self, Error> {
        let desk = Arc::new(Mutex::new(Desk {
            connection,
            others: OtherWriters::default(),
            slow_until: None,
        }));
        let shared = Arc::clone(&desk);
        let jobs = start("postroom-sqlite-write", move |jobs| {
            write_loop(&shared, &jobs)
        })?;
        Ok(Self {
            desk,
            jobs,
            callers: Callers::default(),
        })
    }

    /// Runs calls in one transaction.
    pub(super) async fn run(&self, calls: Vec<Call>) -> Result<Output, Error> {
        let caller = self.callers.enter();
        if caller.is_alone
            && let [call] = calls.as_slice()
            && call.is_small()
            && let Some(result) = self.run_on_the_spot(call)
        {
            return result;
        }
        let (reply, answer) = oneshot::channel();
        self.send(Job::Run { calls, reply })?;
        answer.await.map_err(|_| stopped())?
    }

    /// Gives the connection to `work` alone, outside of any transaction.
    pub(super) async fn alone<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let job = Job::Alone(Box::new(move |connection| {
            let _ = reply.send(work(connection));
        }));
        self.send(job)?;
        answer.await.map_err(|_| stopped())?
    }

    pub(super) fn send(&self, job: Job) -> Result<(), Error> {
        self.jobs.send(job).map_err(|_| stopped())
    }

    /// `None` when the thread should do it: somebody else writes, or it would take long.
    fn run_on_the_spot(&self, call: &Call) -> Option<Result<Output, Error>> {
        let mut desk = match self.desk.try_lock() {
            Ok(desk) => desk,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        let started = Instant::now();
        let slow = desk.slow_until.is_some_and(|until| started < until);
        if slow || desk.others.want_a_pause(&desk.connection) {
            return None;
        }
        desk.connection.busy_handler(None).ok()?;
        let begun = execute(&desk.connection, "BEGIN IMMEDIATE");
        desk.connection
            .busy_handler(Some(wait_for_other_writers))
            .ok()?;
        begun.ok()?;
        let result = run_calls(&desk.connection, std::slice::from_ref(call));
        let result = match result {
            Ok(output) => commit(&desk.connection).map(|()| output),
            Err(error) => {
                let _ = desk.connection.execute_batch("ROLLBACK");
                Err(error)
            }
        };
        desk.note_duration(started);
        Some(result)
    }
}

impl Desk {
    fn note_duration(&mut self, started: Instant) {
        let now = Instant::now();
        if now.duration_since(started) > QUICK {
            self.slow_until = Some(now + AFTER_A_SLOW_ONE);
        }
    }
}

/// Who writes at once. These are hints: nothing but speed depends on them.
#[derive(Default)]
struct Callers {
    /// How many have not got their answer yet.
    in_flight: AtomicUsize,
    /// How many in a row have met no other.
    unmet: AtomicUsize,
}

/// One who has not got an answer yet.
struct Caller<'a> {
    among: &'a Callers,
    is_alone: bool,
}

impl Callers {
    /// So many in a row have to meet nobody until one is taken to be alone: between two that come in the
    /// same moment there is often one that just meets nobody.
    const LONELY: usize = 8;

    fn enter(&self) -> Caller<'_> {
        let meets_nobody = self.in_flight.fetch_add(1, Ordering::Relaxed) == 0;
        let unmet = match meets_nobody {
            true => self.unmet.fetch_add(1, Ordering::Relaxed),
            false => {
                self.unmet.store(0, Ordering::Relaxed);
                0
            }
        };
        Caller {
            among: self,
            is_alone: unmet >= Self::LONELY,
        }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.among.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

fn write_loop(desk: &Mutex<Desk>, jobs: &mpsc::Receiver<Job>) {
    let mut held: Option<Job> = None;
    while let Some(job) = held.take().or_else(|| jobs.recv().ok()) {
        let mut desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
        match job {
            Job::Alone(work) => work(&mut desk.connection),
            Job::Run { calls, reply } => {
                desk.give_way();
                let started = Instant::now();
                held = commit_group(&desk, &calls, reply, jobs);
                desk.note_duration(started);
            }
        }
    }
}

/// Runs the first job and all that are waiting behind it in one transaction, then answers them all.
/// Gives back a job that needs the connection for itself.
fn commit_group(
    desk: &MutexGuard<'_, Desk>,
    calls: &[Call],
    reply: oneshot::Sender<Result<Output, Error>>,
    jobs: &mpsc::Receiver<Job>,
) -> Option<Job> {
    let connection = &desk.connection;
    if let Err(error) = execute(connection, "BEGIN IMMEDIATE") {
        return answer_all(&error, reply, jobs);
    }
    let mut answers = vec![(run_in_savepoint(connection, calls), reply)];
    let mut alone = None;
    // SQLite may undo the whole transaction in the middle, when the disk is full or fails. To go on
    // would be to write outside of it.
    while answers.len() < GROUP_LIMIT && !connection.is_autocommit() {
        match jobs.try_recv() {
            Ok(Job::Run { calls, reply }) => {
                answers.push((run_in_savepoint(connection, &calls), reply));
            }
            Ok(job @ Job::Alone(_)) => {
                alone = Some(job);
                break;
            }
            Err(_) => break,
        }
    }
    let failed = answers
        .last()
        .and_then(|(answer, _)| answer.as_ref().err().cloned());
    let committed = commit(connection).map_err(|error| {
        // What went wrong in the middle says more than that there is nothing to commit.
        failed.unwrap_or(error)
    });
    for (answer, reply) in answers {
        let _ = reply.send(match &committed {
            Ok(()) => answer,
            Err(error) => Err(error.clone()),
        });
    }
    alone
}

/// Whoever waited behind a call that could not begin has waited as long: all get the same answer.
fn answer_all(
    error: &Error,
    reply: oneshot::Sender<Result<Output, Error>>,
    jobs: &mpsc::Receiver<Job>,
) -> Option<Job> {
    let _ = reply.send(Err(error.clone()));
    loop {
        match jobs.try_recv() {
            Ok(Job::Run { reply, .. }) => {
                let _ = reply.send(Err(error.clone()));
            }
            Ok(job @ Job::Alone(_)) => return Some(job),
            Err(_) => return None,
        }
    }
}

fn run_in_savepoint(connection: &Connection, calls: &[Call]) -> Result<Output, Error> {
    execute(connection, "SAVEPOINT call")?;
    let result = run_calls(connection, calls);
    if connection.is_autocommit() {
        return result;
    }
    let undone = match result {
        Err(_) => execute(connection, "ROLLBACK TO call"),
        Ok(_) => Ok(()),
    };
    if undone
        .and_then(|()| execute(connection, "RELEASE call"))
        .is_err()
    {
        // What this call wrote must not be committed with the others: then none of it is.
        let _ = connection.execute_batch("ROLLBACK");
    }
    result
}

/// Commits, unless SQLite has already undone the transaction.
fn commit(connection: &Connection) -> Result<(), Error> {
    if connection.is_autocommit() {
        return Err(ErrorKind::Transient.with("SQLite has undone the transaction"));
    }
    execute(connection, "COMMIT").inspect_err(|_| {
        let _ = connection.execute_batch("ROLLBACK");
    })
}

pub(super) fn execute(connection: &Connection, statement: &str) -> Result<(), Error> {
    connection
        .prepare_cached(statement)
        .and_then(|mut statement| statement.execute([]))
        .map(drop)
        .map_err(|error| database_error(&error))
}

/// SQLite gives the lock to whoever asks at the right moment, so a writer that never pauses would keep
/// it from the writers of other processes. It pauses when they have written since it last did, and
/// now and then to find out whether they want to.
struct OtherWriters {
    version: i64,
    paused: Instant,
}

impl Default for OtherWriters {
    fn default() -> Self {
        Self {
            version: 0,
            paused: Instant::now(),
        }
    }
}

impl OtherWriters {
    const PAUSE: Duration = Duration::from_micros(500);
    const LONGEST_WITHOUT: Duration = Duration::from_millis(50);

    fn want_a_pause(&self, connection: &Connection) -> bool {
        self.paused.elapsed() > Self::LONGEST_WITHOUT || self.version != data_version(connection)
    }
}

impl Desk {
    fn give_way(&mut self) {
        if self.others.want_a_pause(&self.connection) {
            thread::sleep(OtherWriters::PAUSE);
            self.others.paused = Instant::now();
        }
        self.others.version = data_version(&self.connection);
    }
}

/// A number that changes when another connection commits.
pub(super) fn data_version(connection: &Connection) -> i64 {
    connection
        .prepare_cached("PRAGMA data_version")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .unwrap_or_default()
}
