//! A running daemon for tests: the real binary `postroom serve`, with a configuration of the test's own,
//! on a port of its own. It is killed when it is dropped.
//!
//! ```ignore
//! let daemon = Daemon::new("[dispatch]\nenabled = false").start().await;
//! let answer = daemon.get("/v1/stats", &[]).await;
//! assert_eq!(answer.status, 200);
//! ```

#![allow(
    dead_code,
    reason = "every test binary has a copy of this module, and each uses a part of it"
)]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::Fixture;

/// How long a daemon may take to start, or to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a daemon is to be started.
pub(crate) struct Start {
    folder: TempDir,
    command: Command,
    bind: Option<String>,
}

/// A daemon at work.
pub(crate) struct Daemon {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
    client: reqwest::Client,
}

/// What the daemon answered.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: String,
}

impl Daemon {
    /// With this `postroom.toml`, which may be empty, in a folder of its own. That folder is also the
    /// working directory, so without a store the daemon makes its SQLite file there.
    #[must_use]
    #[allow(clippy::new_ret_no_self, reason = "a daemon has to be started")]
    pub(crate) fn new(config: &str) -> Start {
        let folder = tempfile::Builder::new()
            .prefix("postroom-daemon-")
            .tempdir()
            .expect("a temporary folder");
        let file = folder.path().join("postroom.toml");
        std::fs::write(&file, with_secrets_in_files(config, folder.path()))
            .expect("a configuration file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_postroom"));
        command
            .args(["serve", "--config"])
            .arg(&file)
            .current_dir(folder.path())
            .env_remove("POSTROOM_URL")
            .env_remove("POSTROOM_CONFIG")
            .env_remove("RUST_LOG");
        Start {
            folder,
            command,
            bind: Some("127.0.0.1:0".to_owned()),
        }
    }

    /// The same, listening where the configuration says.
    #[must_use]
    pub(crate) fn bound_by(config: &str) -> Start {
        Start {
            bind: None,
            ..Self::new(config)
        }
    }

    /// The same on a fixture's store, which is added to the configuration under the name `main`.
    #[must_use]
    pub(crate) fn on(fixture: &Fixture, config: &str) -> Start {
        Self::new(&format!("{config}\n{}", store("main", fixture)))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of a path: `http://127.0.0.1:1234/v1/stats`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The folder with its configuration, which is also its working directory.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process, for `/proc` and signals.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub(crate) fn stdout(&self) -> String {
        text(&self.out)
    }

    /// What it has logged so far; start it with `--log`, or with `RUST_LOG`, to have more than errors.
    pub(crate) fn stderr(&self) -> String {
        text(&self.err)
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send("GET", path, headers, "").await
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Answer {
        self.send("POST", path, headers, body).await
    }

    /// Any method; redirects are not followed. No `Content-Type` is added to the headers given.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Answer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self.client.request(method, self.url(path)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.expect("an answer");
        Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.text().await.expect("a body of text"),
        }
    }

    /// Asks it to stop, as a service manager does, and waits until it has.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.expect("kill").success(), "the daemon is gone already");
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a status") {
                return status;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "the daemon does not stop:\n{}",
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills it on the spot, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Start {
    /// The database, when the configuration names none.
    #[must_use]
    pub(crate) fn url(self, url: &str) -> Self {
        self.argument("--url").argument(url)
    }

    /// Another address to listen on than a free port of 127.0.0.1.
    #[must_use]
    pub(crate) fn bind(mut self, address: &str) -> Self {
        self.bind = Some(address.to_owned());
        self
    }

    #[must_use]
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.command.arg(argument);
        self
    }

    #[must_use]
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// The folder with the configuration, to put more files into it.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Starts it, and comes back when it answers requests.
    pub(crate) async fn start(self) -> Daemon {
        tokio::task::spawn_blocking(move || self.start_now())
            .await
            .expect("a daemon")
    }

    /// Starts it although it must refuse to; gives what it says on standard error.
    pub(crate) async fn refused(mut self) -> String {
        tokio::task::spawn_blocking(move || {
            let mut child = self.spawn();
            let err = collect(child.stderr.take().expect("a pipe"));
            let started = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().expect("a status") {
                    break status;
                }
                if started.elapsed() > PATIENCE {
                    let _ = child.kill();
                    let _ = child.wait();
                    panic!("the daemon starts although it must not");
                }
                std::thread::sleep(Duration::from_millis(10));
            };
            // The rest of what it said may still be on its way through the pipe.
            while Arc::strong_count(&err) > 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(!status.success(), "{}", text(&err));
            text(&err)
        })
        .await
        .expect("an end")
    }

    fn spawn(&mut self) -> Child {
        if let Some(address) = &self.bind {
            self.command.args(["--bind", address]);
        }
        self.command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs")
    }

    fn start_now(mut self) -> Daemon {
        // Tests speak plain HTTP, but the client wants to know a provider of cryptography.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut child = self.spawn();
        let out = collect(child.stdout.take().expect("a pipe"));
        let err = collect(child.stderr.take().expect("a pipe"));
        let started = Instant::now();
        let address = loop {
            if let Some(address) = printed_address(&text(&out)) {
                break address;
            }
            let ended = child.try_wait().expect("a status");
            if ended.is_some() || started.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                panic!(
                    "the daemon did not start ({ended:?}):\n{}{}",
                    text(&out),
                    text(&err)
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .expect("a client");
        Daemon {
            child,
            address,
            folder: self.folder,
            out,
            err,
            client,
        }
    }
}

impl Answer {
    /// A header's text; empty when it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("text"))
            .unwrap_or_default()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {} {}", self.status, self.body))
    }

    /// The same answer, after a look at its status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }
}

/// A token's secret may not stand in the configuration: tests write it there all the same, for whoever
/// reads them, and it goes into a file.
fn with_secrets_in_files(config: &str, folder: &Path) -> String {
    let mut lines = Vec::new();
    for (number, line) in config.lines().enumerate() {
        let secret = line
            .strip_prefix("secret = ")
            .map(|secret| secret.trim_matches(['"', '\'']));
        let Some(secret) = secret.filter(|secret| !secret.starts_with('{')) else {
            lines.push(line.to_owned());
            continue;
        };
        let file = folder.join(format!("secret-{number}"));
        std::fs::write(&file, secret).expect("a file for a secret");
        lines.push(format!("secret = {{ file = '{}' }}", file.display()));
    }
    lines.join("\n")
}

/// A store for a configuration.
pub(crate) fn store(name: &str, fixture: &Fixture) -> String {
    let schema = fixture
        .schema
        .as_ref()
        .map(|schema| format!("schema = \"{schema}\"\n"))
        .unwrap_or_default();
    format!(
        "[[store]]\nname = \"{name}\"\nurl = \"{}\"\n{schema}",
        fixture.url
    )
}

/// `  dashboard  http://127.0.0.1:1234/`
fn printed_address(out: &str) -> Option<SocketAddr> {
    out.lines()
        .filter(|line| line.trim_start().starts_with("dashboard"))
        .find_map(|line| {
            line.split_once("http://")?
                .1
                .strip_suffix('/')?
                .parse()
                .ok()
        })
}

/// Reads a pipe to its end, line by line, beside the test.
fn collect(pipe: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let collected = Arc::new(Mutex::new(String::new()));
    let into = Arc::clone(&collected);
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            into.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    collected
}

fn text(collected: &Mutex<String>) -> String {
    collected
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}
