//! A worker: this test binary once more, told by its environment where to work. And the handlers that it
//! runs: what a message's payload says decides what happens.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use postroom::{
    Delivery, HandlerError, Message, Options, Outcome, Synchronous, Tx, done, stop_signal,
};
use testkit::{Fixture, eventually};

const URL: &str = "POSTROOM_WORKER_URL";
const SCHEMA: &str = "POSTROOM_WORKER_SCHEMA";
const FOLDER: &str = "POSTROOM_WORKER_FOLDER";
const NUMBER: &str = "POSTROOM_WORKER_NUMBER";
const LEDGER: &str = "POSTROOM_WORKER_LEDGER";

/// Leases are short, so that a test need not wait long for one to expire.
pub(crate) const LEASE: Duration = Duration::from_millis(700);

/// Deliveries without an outcome before a message is given up.
pub(crate) const MAX_DELIVERIES: u32 = 3;

/// A place where workers work.
pub(crate) struct Scene {
    pub(crate) fixture: Fixture,
    folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) async fn new(fixture: Fixture) -> Self {
        fixture
            .sql("CREATE TABLE {ledger} (message TEXT, worker TEXT)")
            .await;
        Self {
            fixture,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Enqueues messages whose payload tells the handler what to do.
    pub(crate) async fn enqueue(&self, what: &str, count: usize) {
        let messages = vec![Message::new("work", what); count];
        for chunk in messages.chunks(500) {
            self.fixture
                .room
                .outbox()
                .enqueue_many(chunk)
                .await
                .unwrap();
        }
    }

    pub(crate) fn start(&self, number: u32) -> Worker {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["child", "--exact", "--nocapture", "--test-threads=1"])
            .env(URL, &self.fixture.url)
            .env(FOLDER, self.folder.path())
            .env(NUMBER, number.to_string())
            .env(LEDGER, self.fixture.table("ledger"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(schema) = &self.fixture.schema {
            command.env(SCHEMA, schema);
        }
        Worker(command.spawn().unwrap())
    }

    /// A file that a worker, or the test, makes to tell the other something.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn wait_for(&self, name: &str) {
        let path = self.file(name);
        eventually(|| async { path.exists().then_some(()) }).await;
    }

    /// Waits for as long as there is progress.
    pub(crate) async fn wait_until_done(&self, count: u64) {
        let mut done = 0;
        while done < count {
            done = eventually(|| async {
                let counts = self.fixture.room.outbox().counts().await.unwrap();
                (counts.done > done).then_some(counts.done)
            })
            .await;
        }
    }

    /// Every message that is done is in the ledger once, and nothing else is.
    pub(crate) async fn check_ledger(&self, expected: i64) {
        let count = |sql: &'static str| self.fixture.number(sql);
        let rows = count("SELECT count(*) FROM {ledger}").await;
        let messages = count("SELECT count(DISTINCT message) FROM {ledger}").await;
        assert_eq!((rows, messages), (expected, expected), "ledger");
        let done = count("SELECT count(*) FROM {outbox_done}").await;
        assert_eq!(done, expected, "done");
    }
}

/// A worker process that does not outlive its test.
pub(crate) struct Worker(Child);

impl Worker {
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([signal, &self.0.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success(), "kill {signal}");
    }

    /// Waits for its end.
    pub(crate) async fn end(mut self) -> ExitStatus {
        eventually(|| {
            let status = self.0.try_wait().unwrap();
            async move { status }
        })
        .await
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a child does.
pub(crate) async fn child() {
    let given = |name| std::env::var(name).ok();
    let (Some(url), Some(folder), Some(number)) = (given(URL), given(FOLDER), given(NUMBER)) else {
        return;
    };
    // A process that is killed loses nothing that it has written, and a busy disk is not the subject.
    let mut options = Options::new(url)
        .worker(format!("worker-{number}"))
        .synchronous(Synchronous::Normal);
    if let Some(schema) = given(SCHEMA) {
        options = options.schema(&schema);
    }
    let room = options.connect().await.unwrap();
    let desk = Desk {
        folder: folder.into(),
        number,
        ledger: given(LEDGER).unwrap(),
    };
    let report = room
        .dispatcher()
        .on("work", {
            let desk = desk.clone();
            move |delivery: Delivery, tx: Tx| {
                let desk = desk.clone();
                async move { desk.handle(delivery, tx).await }
            }
        })
        .on("continued", |_: Delivery| async {})
        .lease(LEASE)
        .poll_interval(Duration::from_millis(100))
        .error_delay(Duration::from_millis(300))
        .handler_timeout(Duration::from_secs(5))
        .max_deliveries(MAX_DELIVERIES)
        .run_until(stop_signal())
        .await
        .unwrap();
    let text = format!("{} {} {}", report.done, report.released, report.lost);
    desk.tell("report", &text);
}

#[derive(Clone)]
struct Desk {
    folder: PathBuf,
    number: String,
    ledger: String,
}

impl Desk {
    async fn handle(&self, delivery: Delivery, mut tx: Tx) -> Result<Outcome, HandlerError> {
        let first = self.number == "0";
        match delivery.payload() {
            // The effect is written, not committed, when the process is killed.
            "stall after writing" if first => {
                self.write(&delivery, &mut tx).await?;
                self.tell("began", "");
                std::future::pending::<()>().await;
            }
            "stall before writing" if first => {
                self.tell("began", "");
                let desk = self.clone();
                let (late, late_tx) = (delivery.clone(), tx.clone());
                // What has lost touch with the dispatcher tries in vain when the process thaws.
                tokio::spawn(async move { desk.come_late(late, late_tx).await });
                std::future::pending::<()>().await;
            }
            "hang" if delivery.progress().attempt_count == 0 => {
                self.tell("began", "");
                std::future::pending::<()>().await;
            }
            "abort" => std::process::abort(),
            "slowly" => tokio::time::sleep(Duration::from_millis(5)).await,
            "wait for go" => self.wait_for_go().await,
            _ => {}
        }
        self.write(&delivery, &mut tx).await?;
        done()
    }

    async fn write(&self, delivery: &Delivery, tx: &mut Tx) -> Result<(), HandlerError> {
        let (one, two) = match delivery.room().dialect() {
            postroom::Dialect::Postgres => ("$1", "$2"),
            postroom::Dialect::MySql => ("?", "?"),
            _ => ("?1", "?2"),
        };
        let sql = format!(
            "INSERT INTO {} (message, worker) VALUES ({one}, {two})",
            self.ledger
        );
        let values = vec![delivery.message_id().into(), self.number.as_str().into()];
        tx.execute(&sql, values).await?;
        Ok(())
    }

    async fn come_late(&self, delivery: Delivery, mut tx: Tx) {
        self.wait_for_go().await;
        delivery.cancelled().await;
        let outbox = delivery.room().outbox();
        let ids = [delivery.work_item_id()];
        let acked = outbox.ack(delivery.owner(), &ids).await.unwrap().len();
        let wrote = self.write(&delivery, &mut tx).await.is_ok();
        self.tell("late", &format!("{acked} {wrote}"));
    }

    async fn wait_for_go(&self) {
        while !self.folder.join("go").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn tell(&self, name: &str, text: &str) {
        let path = self.folder.join(format!("{name}-{}", self.number));
        let unfinished = path.with_extension("unfinished");
        std::fs::write(&unfinished, text).unwrap();
        std::fs::rename(unfinished, path).unwrap();
    }
}

/// What a worker told before it ended: done, released, lost.
pub(crate) fn report(path: &Path) -> [u64; 3] {
    let text = std::fs::read_to_string(path).unwrap();
    let numbers: Vec<u64> = text
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    numbers.try_into().unwrap()
}

/// How many messages are leased, whether or not that has expired.
pub(crate) async fn leased(fixture: &Fixture) -> i64 {
    fixture
        .number("SELECT count(*) FROM {outbox} WHERE owner_token IS NOT NULL")
        .await
}
