//! What private servers have in common.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Whether commits reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As in production: for benchmarks, and for tests that kill the server.
    On,
    /// Fast: for everything else.
    Off,
}

/// Whether we are root, as whom some servers refuse to run.
pub(crate) fn is_root() -> Result<bool> {
    let output = Command::new("id").arg("-u").output().context("id")?;
    Ok(output.stdout.trim_ascii() == b"0")
}

/// Runs a shell script that stops its server when our end of the pipe closes.
pub(crate) fn keep(command: &mut Command) -> Result<Child> {
    command
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("{command:?}"))
}

/// Lets the keeper stop its server, and waits for that.
pub(crate) fn release(keeper: &mut Child) {
    drop(keeper.stdin.take());
    let _ = keeper.wait();
}

/// Waits until a server is ready, or tells what its log says.
pub(crate) fn wait_until(ready: impl Fn() -> bool, name: &str, log: &Path) -> Result<()> {
    for _ in 0..1200 {
        if ready() {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let log = std::fs::read_to_string(log).unwrap_or_default();
    bail!("{name} did not start:\n{log}")
}

pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
