//! The daemon as a contender: messages are enqueued over HTTP, one request each, by connections that stay
//! open.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::{Side, all, not_measured, payload, timed};
use crate::protocol::{Answer, Request};

/// A `postroom serve` of our own, on a store that somebody else may use too.
pub(crate) struct Daemon {
    address: String,
    _process: Child,
    _folder: tempfile::TempDir,
}

impl Daemon {
    pub(crate) async fn start(url: &str, schema: Option<&str>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let schema = schema.map(|schema| format!("schema = \"{schema}\"\n"));
        let config = format!(
            "[[store]]\nname = \"bench\"\nurl = \"{url}\"\n{}\n[dispatch]\nenabled = false\n",
            schema.unwrap_or_default()
        );
        let path = folder.path().join("postroom.toml");
        std::fs::write(&path, config)?;
        let mut process = Command::new(binary()?)
            .args(["serve", "--bind", "127.0.0.1:0", "--config"])
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let out = process.stdout.take().context("no standard output")?;
        let mut lines = BufReader::new(out).lines();
        while let Some(line) = lines.next_line().await? {
            if let Some((_, place)) = line.split_once("dashboard  http://") {
                return Ok(Self {
                    address: place.trim_end_matches('/').to_owned(),
                    _process: process,
                    _folder: folder,
                });
            }
        }
        bail!("the daemon did not start")
    }

    /// `connections` connections at once enqueue one message at a time.
    async fn enqueue(&self, connections: usize, per_connection: usize) -> Result<()> {
        // The payload is a text: its quotes are written with a backslash, and they take their place in it.
        let body = format!(
            r#"{{"topic":"bench.topic","correlation_id":"bench","payload":{}}}"#,
            serde_json::to_string(&payload())?
        );
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let address = self.address.clone();
        // A client needs one thread; the daemon and the database want the rest of a small machine.
        let client = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let work = (0..connections)
                .map(|_| runtime.spawn(one(address.clone(), request.clone(), per_connection)));
            let work: Vec<_> = work.collect();
            runtime.block_on(all(work.into_iter()))
        });
        client.await?
    }
}

/// What one connection does.
async fn one(address: String, request: String, requests: usize) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 8_192];
    for _ in 0..requests {
        stream.write_all(request.as_bytes()).await?;
        answer(&mut stream, &mut buffer).await?;
    }
    Ok(())
}

impl Side for Daemon {
    async fn answer(&mut self, request: Request) -> Result<Answer> {
        match request {
            // The library cleans the store, which is its own too.
            Request::Clean => Ok(Answer::default()),
            Request::Enqueue { tasks, each, .. } => {
                timed(tasks * each, self.enqueue(tasks, each)).await
            }
            _ => not_measured(),
        }
    }
}

/// Reads one answer, which has to be 201 and to tell its length.
async fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<()> {
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        ensure!(read > 0, "the daemon hung up");
        filled += read;
        let Some(head) = buffer[..filled]
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
        else {
            continue;
        };
        let text = std::str::from_utf8(&buffer[..head])?;
        ensure!(
            text.starts_with("HTTP/1.1 201"),
            "the daemon answered {text}"
        );
        let length: usize = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .context("an answer without its length")?
            .1
            .trim()
            .parse()?;
        if filled >= head + 4 + length {
            return Ok(());
        }
    }
}

/// The release binary that lies beside this one.
fn binary() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let path = here.with_file_name("postroom");
    ensure!(
        path.exists(),
        "there is no {}; run `cargo build --release -p postroom-cli` first, or use `cargo xtask bench`",
        path.display()
    );
    Ok(path)
}
