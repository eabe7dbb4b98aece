//! A contender as the driver sees it: a process that is asked and answers.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::protocol::{Answer, Ready, Request};

/// How a contender's process is started.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) folder: Option<PathBuf>,
}

impl Start {
    /// This program itself, as a side of the given kind.
    pub(crate) fn side(arguments: &[&str]) -> Result<Self> {
        let mut all: Vec<OsString> = vec!["side".into()];
        all.extend(arguments.iter().map(OsString::from));
        Ok(Self {
            program: std::env::current_exe()?,
            arguments: all,
            folder: None,
        })
    }
}

/// A contender's process. It ends when this is dropped.
pub(crate) struct Process {
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// What it calls itself.
    pub(crate) name: String,
}

impl Process {
    pub(crate) async fn start(start: &Start) -> Result<Self> {
        let mut command = Command::new(&start.program);
        command
            .args(&start.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        if let Some(folder) = &start.folder {
            command.current_dir(folder);
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("starting {}", start.program.display()))?;
        let requests = child.stdin.take().context("no standard input")?;
        let answers = child.stdout.take().context("no standard output")?;
        let mut process = Self {
            child,
            requests,
            answers: BufReader::new(answers).lines(),
            name: String::new(),
        };
        let ready: Ready = process.line().await?;
        process.name = ready.ready;
        Ok(process)
    }

    pub(crate) async fn ask(&mut self, request: Request) -> Result<Answer> {
        let mut line = serde_json::to_string(&request)?;
        line.push('\n');
        self.requests.write_all(line.as_bytes()).await?;
        let answer: Answer = self.line().await?;
        if let Some(error) = answer.error {
            bail!("{}: {request:?}: {error}", self.name);
        }
        Ok(answer)
    }

    /// Ends it, and waits until it has.
    pub(crate) async fn end(mut self) -> Result<()> {
        drop(self.requests);
        self.child.wait().await?;
        Ok(())
    }

    async fn line<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.answers.next_line().await?;
        let line = line.with_context(|| format!("{} has ended", self.name))?;
        serde_json::from_str(&line).with_context(|| format!("{} said {line}", self.name))
    }

    /// From now on, the peak of its memory is counted anew.
    pub(crate) fn forget_peak(&self) {
        for id in self.family() {
            // Where the kernel has no such file, the peak of its whole life is taken.
            let _ = std::fs::write(format!("/proc/{id}/clear_refs"), "5");
        }
    }

    /// The peak of its resident memory in megabytes, where the system tells.
    pub(crate) fn peak_memory(&self) -> Option<f64> {
        let peaks = self.family().into_iter().filter_map(peak);
        peaks.reduce(|one, other| one + other)
    }

    /// The process and those that it has started: some run their work in a child.
    fn family(&self) -> Vec<u32> {
        let mut family: Vec<u32> = self.child.id().into_iter().collect();
        let mut next = 0;
        while let Some(id) = family.get(next) {
            let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
            let children = children.unwrap_or_default();
            family.extend(
                children
                    .split_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
            next += 1;
        }
        family
    }
}

/// The peak of one process, in megabytes.
fn peak(id: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes: f64 = line?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes / 1024.0)
}
