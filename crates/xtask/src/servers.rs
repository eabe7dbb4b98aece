//! Servers that tests need: found on this machine, or installed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A kind of server that tests need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Postgres,
    MySql,
    /// None can be started here: somebody has to name one.
    SqlServer,
}

impl Database {
    pub(crate) const ALL: [Self; 3] = [Self::Postgres, Self::MySql, Self::SqlServer];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::MySql => "MariaDB",
            Self::SqlServer => "SQL Server",
        }
    }

    /// The word in the modules of its tests, and in the results of a run.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
            Self::SqlServer => "sqlserver",
        }
    }

    /// Starts a private server for a test run: what keeps it running, the variable that tells tests where
    /// it is, and its URL. `None` when there is none and none can be had.
    pub(crate) fn start(self) -> Result<Option<Started>> {
        use testkit::server::Durability::Off;
        if !self.is_here_or_installed() {
            return Ok(None);
        }
        Ok(Some(match self {
            Self::Postgres => {
                let server = testkit::postgres::Server::start(Off)?;
                let url = server.url().to_owned();
                (Box::new(server), testkit::postgres::URL_VARIABLE, url)
            }
            Self::MySql => {
                let server = testkit::mysql::Server::start(Off)?;
                let url = server.url().to_owned();
                (Box::new(server), testkit::mysql::URL_VARIABLE, url)
            }
            Self::SqlServer => {
                let url = testkit::sqlserver::url().context("no SQL Server is named")?;
                (Box::new(()), testkit::sqlserver::URL_VARIABLE, url)
            }
        }))
    }

    fn is_here(self) -> bool {
        match self {
            Self::Postgres => testkit::postgres::find().is_ok(),
            Self::MySql => testkit::mysql::find().is_ok(),
            Self::SqlServer => testkit::sqlserver::url().is_some(),
        }
    }

    pub(crate) fn can_be_installed(self) -> bool {
        self != Self::SqlServer
    }

    /// Makes sure that there is one to start. `false` when there is none and none can be had.
    pub(crate) fn is_here_or_installed(self) -> bool {
        if self.is_here() || !self.can_be_installed() {
            return self.is_here();
        }
        eprintln!("no {} found; trying to install it", self.name());
        match self.install() {
            Ok(()) => self.is_here(),
            Err(error) => {
                eprintln!("{} could not be installed: {error:#}", self.name());
                false
            }
        }
    }

    fn install(self) -> Result<()> {
        if !Path::new("/usr/bin/apt-get").exists() {
            bail!("this is no Debian: install a server of it so that its programs can be found");
        }
        let package = match self {
            Self::Postgres => {
                no_cluster()?;
                "postgresql"
            }
            Self::MySql => {
                no_service()?;
                "mariadb-server"
            }
            Self::SqlServer => bail!("somebody has to name one"),
        };
        apt_get(&["update", "-qq"])?;
        apt_get(&[
            "install",
            "-y",
            "-qq",
            "--no-install-recommends",
            "-o",
            "Dpkg::Options::=--force-confold",
            package,
        ])
    }
}

/// A server of a test run: itself, and how tests are told where it is.
pub(crate) type Started = (Box<dyn std::any::Any>, &'static str, String);

/// Debian's package of PostgreSQL makes and starts a cluster of its own unless it is told not to.
fn no_cluster() -> Result<()> {
    let settings = Path::new("/etc/postgresql-common/createcluster.conf");
    if !settings.exists() {
        std::fs::create_dir_all("/etc/postgresql-common").context("this needs root")?;
        std::fs::write(settings, "create_main_cluster = false\n").context("this needs root")?;
    }
    Ok(())
}

/// Debian's package of MariaDB starts its service unless a policy forbids it.
fn no_service() -> Result<()> {
    let policy = Path::new("/usr/sbin/policy-rc.d");
    if !policy.exists() {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(policy, "#!/bin/sh\nexit 101\n").context("this needs root")?;
        std::fs::set_permissions(policy, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
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
