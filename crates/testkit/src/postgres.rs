//! A private PostgreSQL: on a free port of 127.0.0.1, in a temporary folder, gone when its owner is.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use tempfile::TempDir;

pub use crate::server::Durability;
use crate::server::{free_port, is_root, keep, release, run, wait_until};

/// Where a test run says that its server is.
pub const URL_VARIABLE: &str = "POSTROOM_TEST_POSTGRES";

/// A running server. It stops when this is dropped, and also when this process dies: its keeper
/// waits for the end of a pipe that only we hold.
#[derive(Debug)]
pub struct Server {
    keeper: Child,
    url: String,
    folder: TempDir,
}

/// The server that all tests of this process share: the one that the test run has started, or one of
/// our own.
///
/// # Panics
/// When there is no PostgreSQL here; `cargo xtask test` leaves such tests out and says so.
pub fn shared_url() -> &'static str {
    static SHARED: OnceLock<(String, Option<Server>)> = OnceLock::new();
    let (url, _) = SHARED.get_or_init(|| match std::env::var(URL_VARIABLE) {
        Ok(url) => (url, None),
        Err(_) => {
            let server = Server::start(Durability::Off).expect("PostgreSQL starts");
            (server.url().to_owned(), Some(server))
        }
    });
    url
}

impl Server {
    /// Starts a server.
    ///
    /// # Errors
    /// When there are no binaries or the server does not come up.
    pub fn start(durability: Durability) -> Result<Self> {
        let binaries = find().context("no PostgreSQL server on this machine")?;
        let folder = tempfile::Builder::new().prefix("postroom-pg-").tempdir()?;
        let user = server_user()?;
        if let Some(user) = &user {
            run(Command::new("chown").arg(user).arg(folder.path()))?;
        }
        let data = folder.path().join("data");
        run(as_user(user.as_deref(), &binaries.join("initdb"))
            .args([
                "--auth=trust",
                "--username=postroom",
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C",
                "-D",
            ])
            .arg(&data))?;
        let port = free_port()?;
        write_settings(&data, port, durability, user.as_deref())?;
        let keeper = keep_server(&binaries, &data, user.as_deref(), folder.path())?;
        let url = format!("postgres://postroom@127.0.0.1:{port}/postgres");
        let server = Self {
            keeper,
            url,
            folder,
        };
        server.wait_until_ready(&binaries, port)?;
        Ok(server)
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where its files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Stops it the hard way, as a crash would, and starts it again.
    ///
    /// # Errors
    /// When `pg_ctl` fails.
    pub fn crash_and_restart(&self) -> Result<()> {
        self.control(&["restart", "-m", "immediate", "-w", "-t", "60"])
    }

    /// Stops it the hard way.
    ///
    /// # Errors
    /// When `pg_ctl` fails.
    pub fn crash(&self) -> Result<()> {
        self.control(&["stop", "-m", "immediate", "-w", "-t", "60"])
    }

    /// Starts it again after a crash.
    ///
    /// # Errors
    /// When `pg_ctl` fails.
    pub fn restart(&self) -> Result<()> {
        self.control(&["start", "-w", "-t", "60"])
    }

    /// Makes it offer TLS with this certificate and key, both PEM.
    ///
    /// # Errors
    /// When the files cannot be written or the server cannot be restarted.
    pub fn offer_tls(&self, certificate: &str, key: &str) -> Result<()> {
        let data = self.folder.path().join("data");
        for (name, content) in [("server.crt", certificate), ("server.key", key)] {
            let path = data.join(name);
            std::fs::write(&path, content)?;
            run(Command::new("chmod").arg("600").arg(&path))?;
            if let Some(user) = server_user()? {
                run(Command::new("chown").arg(user).arg(&path))?;
            }
        }
        let settings = std::fs::OpenOptions::new()
            .append(true)
            .open(data.join("postgresql.auto.conf"));
        writeln!(settings?, "ssl = on")?;
        self.crash_and_restart()
    }

    fn control(&self, arguments: &[&str]) -> Result<()> {
        let binaries = find()?;
        run(as_user(server_user()?.as_deref(), &binaries.join("pg_ctl"))
            .arg("-D")
            .arg(self.folder.path().join("data"))
            .arg("-l")
            .arg(self.folder.path().join("data/server.log"))
            .args(arguments))
    }

    fn wait_until_ready(&self, binaries: &Path, port: u16) -> Result<()> {
        let ready = || {
            Command::new(binaries.join("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()])
                .status()
                .is_ok_and(|status| status.success())
        };
        let log = self.folder.path().join("data/server.log");
        wait_until(ready, "PostgreSQL", &log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        release(&mut self.keeper);
    }
}

/// The folder of the server's binaries: on the path, or where Debian puts them.
///
/// # Errors
/// When there are none.
pub fn find() -> Result<PathBuf> {
    let on_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let mut debian: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    debian.sort();
    debian
        .into_iter()
        .rev()
        .chain(on_path)
        .find(|folder| {
            ["initdb", "pg_ctl", "pg_isready"]
                .iter()
                .all(|name| folder.join(name).exists())
        })
        .context("initdb, pg_ctl and pg_isready were not found")
}

/// PostgreSQL refuses to run as root: then it runs as the user that Debian's package has made.
fn server_user() -> Result<Option<String>> {
    Ok(is_root()?.then(|| "postgres".to_owned()))
}

fn as_user(user: Option<&str>, program: &Path) -> Command {
    match user {
        None => Command::new(program),
        Some(user) => {
            let mut command = Command::new("runuser");
            command.args(["-u", user, "--"]).arg(program);
            command
        }
    }
}

fn write_settings(
    data: &Path,
    port: u16,
    durability: Durability,
    user: Option<&str>,
) -> Result<()> {
    let path = data.join("postgresql.auto.conf");
    let mut file = std::fs::File::create(&path)?;
    writeln!(
        file,
        "port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''"
    )?;
    writeln!(
        file,
        "max_connections = 400\nshared_buffers = 256MB\nmax_wal_size = 2GB"
    )?;
    writeln!(
        file,
        "log_min_messages = warning\nlog_min_error_statement = panic"
    )?;
    if durability == Durability::Off {
        writeln!(
            file,
            "fsync = off\nsynchronous_commit = off\nfull_page_writes = off"
        )?;
    }
    if let Some(user) = user {
        run(Command::new("chown").arg(user).arg(&path))?;
    }
    Ok(())
}

/// Starts the server under a shell that stops it when our end of the pipe closes.
fn keep_server(binaries: &Path, data: &Path, user: Option<&str>, folder: &Path) -> Result<Child> {
    let script = r#"
        trap '' INT TERM HUP
        "$1/pg_ctl" -D "$2" -l "$2/server.log" -w -t 60 start >/dev/null 2>&1
        read -r _
        "$1/pg_ctl" -D "$2" -m immediate -w stop >/dev/null 2>&1
        rm -rf "$3"/*
    "#;
    keep(
        as_user(user, Path::new("/bin/sh"))
            .args(["-c", script, "keeper"])
            .arg(binaries)
            .arg(data)
            .arg(folder),
    )
}
