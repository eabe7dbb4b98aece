//! An SQLite file that others lock, or that cannot grow.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use postroom::{ErrorKind, Message, Options, Postroom};
use testkit::{Backend, Fixture, eventually};

const LOCK: &str = "POSTROOM_LOCK_FILE";
const FOLDER: &str = "POSTROOM_LOCK_FOLDER";

/// What a child process runs: it holds the write lock until it is told to let go.
#[test]
fn child_holds_the_lock() {
    let (Ok(file), Ok(folder)) = (std::env::var(LOCK), std::env::var(FOLDER)) else {
        return;
    };
    let connection = rusqlite::Connection::open(file).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::fs::write(Path::new(&folder).join("held"), "").unwrap();
    while !Path::new(&folder).join("release").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    connection.execute_batch("COMMIT").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_for_another_process_that_holds_the_lock() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["sqlite::child_holds_the_lock", "--exact", "--quiet"])
        .env(LOCK, fixture.url.trim_start_matches("sqlite:"))
        .env(FOLDER, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually(|| async { folder.path().join("held").exists().then_some(()) }).await;

    let outbox = fixture.room.outbox();
    let mut writes = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let outbox = outbox.clone();
        writes.spawn(async move { outbox.enqueue(&Message::new("a", "b")).await });
    }
    // Reading goes on; writing waits.
    assert_eq!(outbox.counts().await.unwrap().ready, 0);
    assert!(
        tokio::time::timeout(Duration::from_millis(300), writes.join_next())
            .await
            .is_err()
    );
    std::fs::write(folder.path().join("release"), "").unwrap();
    for result in writes.join_all().await {
        result.unwrap();
    }
    assert_eq!(outbox.counts().await.unwrap().ready, 10);
    assert!(child.wait().unwrap().success());
}

/// Shows OBX-097, OBX-001.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_an_error_and_leaves_nothing_half_done() {
    let Some(disk) = Disk::mount() else { return };
    let room = disk.open().await;
    let outbox = room.outbox();
    std::fs::write(disk.path().join("ballast"), vec![0; 1 << 20]).unwrap();

    let mut kept = 0;
    let mut failed = 0;
    let payload = "x".repeat(100_000);
    while failed < 20 {
        // Callers that share a commit share its fate, and each must be told the truth. One of them needs
        // more than the cache holds, so that the disk is full long before the commit.
        let mut writes = tokio::task::JoinSet::new();
        for number in 0..8 {
            let (outbox, payload) = (outbox.clone(), payload.clone());
            let large = if number == 3 { 60 } else { number % 2 };
            writes.spawn(async move {
                let mut messages = vec![Message::new("small", "")];
                messages.extend((0..large).map(|_| Message::new("large", payload.as_str())));
                outbox.enqueue_many(&messages).await
            });
        }
        for result in writes.join_all().await {
            match result {
                Ok(receipts) => kept += receipts.len() as u64,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Transient, "{error}");
                    failed += 1;
                }
            }
        }
        assert_eq!(
            outbox.counts().await.unwrap().ready,
            kept,
            "what was answered, and no more"
        );
        assert!(kept < 1_000, "the disk never fills up");
    }

    std::fs::remove_file(disk.path().join("ballast")).unwrap();
    outbox
        .enqueue_many(&[Message::new("small", ""), Message::new("large", payload)])
        .await
        .unwrap();
    assert_eq!(outbox.counts().await.unwrap().ready, kept + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_disk_is_an_error_until_it_is_writable_again() {
    let Some(disk) = Disk::mount() else { return };
    let mut before = Options::new(disk.url())
        .deploy(true)
        .connect()
        .await
        .unwrap();
    before
        .outbox()
        .enqueue(&Message::new("a", "b"))
        .await
        .unwrap();
    // A disk cannot become read-only while a file on it is open for writing.
    drop(before);
    eventually(|| async { disk.remount("ro").then_some(()) }).await;
    let refused = Options::new(disk.url()).connect().await;
    if let Ok(room) = refused {
        let error = room
            .outbox()
            .enqueue(&Message::new("a", "b"))
            .await
            .unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Database | ErrorKind::Transient),
            "{error}"
        );
    }
    assert!(disk.remount("rw"));
    before = disk.open().await;
    before
        .outbox()
        .enqueue(&Message::new("a", "b"))
        .await
        .unwrap();
    assert_eq!(before.outbox().counts().await.unwrap().ready, 2);
}

/// A disk of a few megabytes that is gone when this is dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    /// Only an administrator can mount one.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=3m", "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            eprintln!("SKIPPED: no small disk can be mounted here");
            return None;
        }
        Some(Self(folder))
    }

    fn remount(&self, how: &str) -> bool {
        let option = format!("remount,{how}");
        let status = Command::new("mount")
            .args(["-o", &option])
            .arg(self.path())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path().join("test.db").display())
    }

    async fn open(&self) -> Postroom {
        Options::new(self.url())
            .deploy(true)
            .connect()
            .await
            .unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
