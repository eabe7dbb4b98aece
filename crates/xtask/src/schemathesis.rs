//! Checks that the daemon answers as its OpenAPI document says, with schemathesis: thousands of requests,
//! right ones and wrong ones, made from the document.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use testkit::postgres::{Durability, Server};

use crate::run;
use crate::servers::Database;

const TOKEN: &str = "schemathesis-token";

/// Runs it against a daemon on SQLite, and on PostgreSQL if there is one. `false` when schemathesis is not
/// here and cannot be installed.
pub(crate) fn check() -> Result<bool> {
    let Some(program) = find_or_install() else {
        eprintln!("\nschemathesis is not here: the OpenAPI document is NOT CHECKED\n");
        return Ok(false);
    };
    let daemon = build_daemon()?;
    examine(&program, &daemon, "sqlite:postroom.db")?;
    if Database::Postgres.is_here_or_installed() {
        let server = Server::start(Durability::Off)?;
        examine(&program, &daemon, server.url())?;
    }
    Ok(true)
}

/// On the path, or in a Python environment of its own under `target/`.
fn find_or_install() -> Option<PathBuf> {
    let runs = |program: &Path| {
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null());
        version
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let environment = run::root().join("target/schemathesis");
    let installed = environment.join("bin/schemathesis");
    for program in [PathBuf::from("schemathesis"), installed.clone()] {
        if runs(&program) {
            return Some(program);
        }
    }
    eprintln!("no schemathesis found; trying to install it");
    let steps = [
        ("python3".into(), vec!["-m", "venv", environment.to_str()?]),
        (
            environment.join("bin/pip"),
            vec!["install", "--quiet", "schemathesis>=4,<5"],
        ),
    ];
    for (program, arguments) in steps {
        let status = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .status();
        if !status.is_ok_and(|status| status.success()) {
            return None;
        }
    }
    runs(&installed).then_some(installed)
}

fn build_daemon() -> Result<PathBuf> {
    let status = Command::new(run::cargo())
        .args(["build", "--quiet", "--package", "postroom-cli"])
        .current_dir(run::root())
        .status()?;
    if !status.success() {
        bail!("the daemon could not be built");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| run::root().join("target"), PathBuf::from);
    target
        .join("debug/postroom")
        .canonicalize()
        .context("the daemon")
}

fn examine(program: &Path, daemon: &Path, url: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let daemon = Daemon::start(daemon, url, folder.path())?;
    let settings = run::root()
        .join("crates/xtask/schemathesis.toml")
        .canonicalize()?;
    let status = Command::new(program)
        .arg("--config-file")
        .arg(settings)
        .args([
            "run",
            "--checks",
            "all",
            "--max-examples",
            "40",
            "--no-color",
        ])
        .args(["--generation-deterministic", "--continue-on-failure"])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .arg(format!("{}v1/openapi.json", daemon.url))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .status()
        .context("schemathesis")?;
    if !status.success() {
        bail!("the daemon does not answer as docs/openapi.json says");
    }
    Ok(())
}

/// A daemon with a token, which is killed when it is dropped.
struct Daemon {
    child: Child,
    url: String,
    /// Kept open: a daemon that cannot print any more ends.
    _out: BufReader<ChildStdout>,
}

impl Daemon {
    fn start(program: &Path, url: &str, folder: &Path) -> Result<Self> {
        let config = format!(
            "[dispatch]\nenabled = false\n\n\
             [[auth.token]]\nname = \"schemathesis\"\nrole = \"admin\"\npayloads = true\nsecret = {{ env = \"SCHEMATHESIS_TOKEN\" }}\n\n\
             [[store]]\nname = \"main\"\nurl = \"{url}\"\ndeploy = true\n"
        );
        let file = folder.join("postroom.toml");
        std::fs::write(&file, config)?;
        let mut child = Command::new(program)
            .args(["serve", "--bind", "127.0.0.1:0", "--config"])
            .arg(&file)
            .current_dir(folder)
            .env("SCHEMATHESIS_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the daemon")?;
        let mut out = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut line = String::new();
        while out.read_line(&mut line)? > 0 {
            if let Some(url) = line.trim_start().strip_prefix("dashboard") {
                let url = url.trim().to_owned();
                return Ok(Self {
                    child,
                    url,
                    _out: out,
                });
            }
            line.clear();
        }
        child.wait()?;
        bail!("the daemon did not start")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
