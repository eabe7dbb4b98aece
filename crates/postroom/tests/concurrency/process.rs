//! Child processes: this test binary once more, told by its environment what to do and where.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use postroom::{Options, Postroom};
use testkit::{Fixture, eventually};

const ROLE: &str = "POSTROOM_CHILD_ROLE";
const URL: &str = "POSTROOM_CHILD_URL";
const SCHEMA: &str = "POSTROOM_CHILD_SCHEMA";
const FOLDER: &str = "POSTROOM_CHILD_FOLDER";
const NUMBER: &str = "POSTROOM_CHILD_NUMBER";

/// What a child is told.
pub(crate) struct Place {
    pub(crate) role: String,
    pub(crate) folder: PathBuf,
    pub(crate) number: usize,
    url: String,
    schema: Option<String>,
}

impl Place {
    pub(crate) fn given() -> Option<Self> {
        let given = |name| std::env::var(name).ok();
        Some(Self {
            role: given(ROLE)?,
            folder: given(FOLDER)?.into(),
            number: given(NUMBER)?.parse().ok()?,
            url: given(URL)?,
            schema: given(SCHEMA),
        })
    }

    pub(crate) fn options(&self) -> Options {
        let options = Options::new(self.url.as_str())
            .worker(format!("process-{}", self.number))
            .connections(8);
        match &self.schema {
            Some(schema) => options.schema(schema),
            None => options,
        }
    }

    pub(crate) async fn connect(&self) -> Postroom {
        self.options().connect().await.unwrap()
    }

    /// Waits until all children have come this far.
    pub(crate) async fn start_together(&self) {
        std::fs::write(self.folder.join(format!("ready-{}", self.number)), "").unwrap();
        let go = self.folder.join("go");
        while !go.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Starts children that all do the same, and waits for their success.
pub(crate) async fn run_children(
    fixture: &Fixture,
    role: &str,
    count: usize,
    folder: &std::path::Path,
) {
    let mut children: Vec<Running> = (0..count)
        .map(|number| Running(spawn(fixture, role, number, folder)))
        .collect();
    eventually(|| async {
        (0..count)
            .all(|number| folder.join(format!("ready-{number}")).exists())
            .then_some(())
    })
    .await;
    std::fs::write(folder.join("go"), "").unwrap();
    for (number, child) in children.iter_mut().enumerate() {
        let status = tokio::time::timeout(Duration::from_secs(90), async {
            loop {
                if let Some(status) = child.0.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let status = status
            .await
            .unwrap_or_else(|_| panic!("child {number} does not come to an end"));
        assert!(status.success(), "child {number} failed: {status}");
    }
}

fn spawn(fixture: &Fixture, role: &str, number: usize, folder: &std::path::Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "child",
            "--exact",
            "--nocapture",
            "--test-threads=1",
            "--quiet",
        ])
        .env(ROLE, role)
        .env(URL, &fixture.url)
        .env(FOLDER, folder)
        .env(NUMBER, number.to_string())
        .stdout(Stdio::null());
    if let Some(schema) = &fixture.schema {
        command.env(SCHEMA, schema);
    }
    command.spawn().unwrap()
}

/// A child that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A small, repeatable source of choices.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ (seed as u64 + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
