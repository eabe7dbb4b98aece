//! Servers that tests need: found on this machine, or installed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Makes sure that there is a PostgreSQL to start. `false` when there is none and none can be had.
pub(crate) fn postgres() -> Result<bool> {
    if testkit::postgres::find().is_ok() {
        return Ok(true);
    }
    eprintln!("no PostgreSQL found; trying to install it");
    match install() {
        Ok(()) => Ok(testkit::postgres::find().is_ok()),
        Err(error) => {
            eprintln!("PostgreSQL could not be installed: {error:#}");
            Ok(false)
        }
    }
}

/// Debian's package makes and starts a cluster of its own unless it is told not to.
fn install() -> Result<()> {
    let settings = Path::new("/etc/postgresql-common/createcluster.conf");
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!(
            "this is no Debian: install a PostgreSQL server so that initdb and pg_ctl can be found"
        );
    }
    if !settings.exists() {
        std::fs::create_dir_all("/etc/postgresql-common").context("this needs root")?;
        std::fs::write(settings, "create_main_cluster = false\n").context("this needs root")?;
    }
    apt_get(&["update", "-qq"])?;
    apt_get(&[
        "install",
        "-y",
        "-qq",
        "--no-install-recommends",
        "-o",
        "Dpkg::Options::=--force-confold",
        "postgresql",
    ])
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        bail!("apt-get {} failed", arguments[0]);
    }
    Ok(())
}
