//! Other queues on PostgreSQL, each from its registry in a pinned version (`bench/peers`). One that cannot be
//! installed or started here is shown as not run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;

use crate::process::Start;

/// A peer that can be started, or why it cannot.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) start: Result<Start>,
}

/// Installs the peers under `target`, which takes minutes for the first time.
pub(crate) fn install(target: &Path) -> Vec<Peer> {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    let step = |name: &str, install: fn(&Path) -> Result<PathBuf>| {
        bar.set_message(format!("installing peers: {name}"));
        install(&target.join("peers").join(name)).map_err(|error| format!("{error:#}"))
    };
    let (node, rust, python) = (
        step("node", node),
        step("rust", rust),
        step("python", python),
    );
    bar.finish_and_clear();
    let start = |folder: &Result<PathBuf, String>, make: &dyn Fn(&Path) -> Start| {
        let folder = folder.as_ref().map_err(|why| anyhow::anyhow!("{why}"));
        folder.map(|folder| make(folder))
    };
    let script = |program: &'static str, script: &'static str| {
        move |folder: &Path| Start {
            program: program.into(),
            arguments: vec![OsString::from(script)],
            folder: Some(folder.to_owned()),
        }
    };
    let binary = |name: &'static str| {
        move |folder: &Path| Start {
            program: folder.join("release").join(name),
            arguments: Vec::new(),
            folder: None,
        }
    };
    vec![
        Peer {
            name: "graphile-worker (npm)",
            start: start(&node, &script("node", "graphile-worker.mjs")),
        },
        Peer {
            name: "pg-boss (npm)",
            start: start(&node, &script("node", "pg-boss.mjs")),
        },
        Peer {
            name: "graphile_worker (crate)",
            start: start(&rust, &binary("graphile_worker")),
        },
        Peer {
            name: "apalis-postgres (crate)",
            start: start(&rust, &binary("apalis_postgres")),
        },
        Peer {
            name: "pgqueuer (PyPI)",
            start: start(&python, &script("./bin/python", "pgqueuer_side.py")),
        },
    ]
}

/// Where the sources of the peers are.
fn sources(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("peers")
        .join(language)
}

fn node(folder: &Path) -> Result<PathBuf> {
    copy("node", folder)?;
    run(Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund"])
        .current_dir(folder))?;
    Ok(folder.to_owned())
}

fn python(folder: &Path) -> Result<PathBuf> {
    if !folder.join("bin/python").exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    }
    copy("python", folder)?;
    run(Command::new(folder.join("bin/pip"))
        .args(["install", "-q", "-r"])
        .arg(folder.join("requirements.txt")))?;
    Ok(folder.to_owned())
}

fn rust(folder: &Path) -> Result<PathBuf> {
    run(Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(sources("rust").join("Cargo.toml"))
        .arg("--target-dir")
        .arg(folder))?;
    Ok(folder.to_owned())
}

/// Copies the files of a language: an installation leaves nothing beside its sources.
fn copy(language: &str, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for entry in std::fs::read_dir(sources(language))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{} is not here", command.get_program().display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().find(|line| line.starts_with("error"));
        let line = line.or_else(|| said.trim().lines().last());
        bail!(
            "{} failed: {}",
            command.get_program().display(),
            line.unwrap_or("it said nothing")
        );
    }
    Ok(())
}
