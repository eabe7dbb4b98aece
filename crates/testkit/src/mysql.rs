//! A private MariaDB: on a free port of 127.0.0.1, in a temporary folder, gone when its owner is.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use tempfile::TempDir;

use crate::server::{Durability, free_port, is_root, keep, release, run, wait_until};

/// Where a test run says that its server is: a URL whose user may create databases.
pub const URL_VARIABLE: &str = "POSTROOM_TEST_MYSQL";

/// A running server. It stops when this is dropped, and also when this process dies: its keeper
/// waits for the end of a pipe that only we hold.
#[derive(Debug)]
pub struct Server {
    keeper: Child,
    url: String,
    folder: TempDir,
    arguments: Vec<String>,
    /// Servers that were started after a crash.
    restarted: Mutex<Vec<Child>>,
}

/// The server that all tests of this process share: the one that the test run has started, or one of
/// our own.
///
/// # Panics
/// When there is no MariaDB here; `cargo xtask test` leaves such tests out and says so.
pub fn shared_url() -> &'static str {
    static SHARED: OnceLock<(String, Option<Server>)> = OnceLock::new();
    let (url, _) = SHARED.get_or_init(|| match std::env::var(URL_VARIABLE) {
        Ok(url) => (url, None),
        Err(_) => {
            let server = Server::start(Durability::Off).expect("MariaDB starts");
            (server.url().to_owned(), Some(server))
        }
    });
    url
}

/// Makes a fresh database on a server, and gives its URL.
///
/// # Panics
/// When the server refuses.
pub async fn fresh_database(server: &str) -> String {
    let (place, _) = server.rsplit_once('/').expect("a URL with a database");
    let name = format!("t_{}", uuid::Uuid::now_v7().simple());
    let mut connection = mysql_async::Conn::from_url(server).await.expect("connect");
    connection
        .query_drop(format!("CREATE DATABASE {name}"))
        .await
        .expect("a database");
    connection.disconnect().await.expect("disconnect");
    format!("{place}/{name}")
}

/// The numbers from 1 to `count`, as column `seq` of what a FROM can name.
#[must_use]
pub fn numbers(count: u32) -> String {
    format!(
        "JSON_TABLE(CONCAT('[0', REPEAT(',0', {count} - 1), ']'), '$[*]' COLUMNS (seq FOR ORDINALITY)) AS n"
    )
}

/// Begins a transaction of the test's own, at the server's default level.
///
/// # Panics
/// When the server refuses.
pub async fn begin(connection: &mut mysql_async::Conn) -> mysql_async::Transaction<'_> {
    connection
        .start_transaction(mysql_async::TxOpts::default())
        .await
        .expect("a transaction")
}

/// A transaction that is open on the server.
#[derive(Clone, Copy, Debug)]
pub struct OpenTransaction {
    /// Whose it is: the id of its connection.
    pub connection: u32,
    /// Whether it waits for a lock of another.
    pub waits: bool,
    /// How many locks on rows and entries of indexes it has.
    pub row_locks: u32,
}

/// The transactions that are open on connections to the current database.
///
/// They come from the status of the engine, which is of this moment: `information_schema.innodb_trx` is not
/// written anew while anybody reads it more often than every 0.1 seconds, as waiting tests do together.
///
/// # Panics
/// When the server refuses, or its status cannot be read.
pub async fn open_transactions(connection: &mut mysql_async::Conn) -> Vec<OpenTransaction> {
    let status: Option<(String, String, String)> = connection
        .query_first("SHOW ENGINE INNODB STATUS")
        .await
        .expect("the status of the engine");
    let here = "SELECT id FROM information_schema.processlist WHERE db = DATABASE()";
    let here: Vec<u32> = connection.query(here).await.expect("the connections");
    let (_, _, status) = status.expect("a row");
    let mut open: Vec<_> = status
        .split("\n---TRANSACTION ")
        .skip(1)
        .filter_map(open_transaction)
        .collect();
    open.retain(|transaction| here.contains(&transaction.connection));
    open
}

/// One transaction as the engine writes it; none where it has not begun, or is one of the server's own.
fn open_transaction(text: &str) -> Option<OpenTransaction> {
    if text.lines().next()?.ends_with("not started") {
        return None;
    }
    let number_after = |mark: &str| {
        let (_, rest) = text.split_once(mark)?;
        rest.split(|letter: char| !letter.is_ascii_digit())
            .next()?
            .parse()
            .ok()
    };
    let (before, _) = text.split_once(" row lock(s)").expect("a count of locks");
    let row_locks = before.rsplit(' ').next()?.parse().ok()?;
    Some(OpenTransaction {
        connection: number_after(" thread id ")?,
        waits: text.lines().any(|line| line.starts_with("LOCK WAIT ")),
        row_locks,
    })
}

/// Our error inside of the client's.
///
/// # Panics
/// When it is the client's own.
#[must_use]
pub fn ours(error: mysql_async::Error) -> postroom::Error {
    match error {
        mysql_async::Error::Other(error) => *error.downcast().expect("an error of postroom's"),
        other => panic!("{other}"),
    }
}

impl Server {
    /// Starts a server.
    ///
    /// # Errors
    /// When there are no binaries or the server does not come up.
    pub fn start(durability: Durability) -> Result<Self> {
        Self::start_with(durability, &[])
    }

    /// Starts a server with options of the test's own, which come after ours.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(durability: Durability, options: &[&str]) -> Result<Self> {
        let (server, install) = find().context("no MariaDB server on this machine")?;
        let folder = tempfile::Builder::new()
            .prefix("postroom-mariadb-")
            .tempdir()?;
        // A server that starts clears away whatever temporary tables it finds, those of its neighbours too.
        let temporary = folder.path().join("tmp");
        std::fs::create_dir(&temporary)?;
        let data = format!("--datadir={}", folder.path().join("data").display());
        let user = is_root()?.then(|| "--user=root".to_owned());
        run(Command::new(install)
            .args([
                "--no-defaults",
                "--skip-test-db",
                "--auth-root-authentication-method=normal",
            ])
            .env("TMPDIR", &temporary)
            .arg(&data)
            .args(&user))?;
        let port = free_port()?;
        let mut arguments = vec!["--no-defaults".to_owned(), data];
        arguments.extend(user);
        arguments.extend(settings(folder.path(), port, durability)?);
        arguments.extend(options.iter().map(|&option| option.to_owned()));
        let keeper = keep_server(&server, folder.path(), &arguments)?;
        let server = Self {
            keeper,
            url: format!("mysql://postroom@127.0.0.1:{port}/postroom"),
            folder,
            arguments,
            restarted: Mutex::default(),
        };
        server.wait_until_ready()?;
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

    /// Stops it the hard way.
    ///
    /// # Errors
    /// When it was not running.
    pub fn crash(&self) -> Result<()> {
        let pid = std::fs::read_to_string(self.folder.path().join("pid")).context("its pid")?;
        let pid = pid.trim();
        run(Command::new("kill").args(["-KILL", pid]))?;
        std::fs::remove_file(self.folder.path().join("pid"))?;
        // What was started again is our child, and stays a zombie until it is waited for.
        let mut restarted = self.restarted();
        for child in restarted.iter_mut() {
            let _ = child.wait();
        }
        restarted.clear();
        while Path::new("/proc").join(pid).join("exe").exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Starts it again after a crash.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn restart(&self) -> Result<()> {
        let (server, _) = find()?;
        let child = Command::new(server)
            .args(&self.arguments)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.restarted().push(child);
        self.wait_until_ready()
    }

    /// Stops it the hard way, as a crash would, and starts it again.
    ///
    /// # Errors
    /// When it was not running, or does not come up.
    pub fn crash_and_restart(&self) -> Result<()> {
        self.crash()?;
        self.restart()
    }

    /// Makes it offer TLS with this certificate and key, both PEM.
    ///
    /// # Errors
    /// When the files cannot be written or the server cannot be restarted.
    pub fn offer_tls(&mut self, certificate: &str, key: &str) -> Result<()> {
        for (option, name, content) in [
            ("ssl-cert", "server.crt", certificate),
            ("ssl-key", "server.key", key),
        ] {
            let path = self.folder.path().join(name);
            std::fs::write(&path, content)?;
            self.arguments
                .push(format!("--{option}={}", path.display()));
        }
        self.crash_and_restart()
    }

    fn restarted(&self) -> std::sync::MutexGuard<'_, Vec<Child>> {
        self.restarted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let address = self.url.split(['@', '/']).nth(3).context("an address")?;
        let greets = || {
            TcpStream::connect(address)
                .and_then(|mut stream| {
                    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
                    stream.read_exact(&mut [0; 5])
                })
                .is_ok()
        };
        wait_until(greets, "MariaDB", &self.folder.path().join("server.log"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        release(&mut self.keeper);
        for child in self.restarted().iter_mut() {
            let _ = child.wait();
        }
    }
}

/// The server and the program that makes its first files.
///
/// # Errors
/// When they are not here.
pub fn find() -> Result<(PathBuf, PathBuf)> {
    let on_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let folders: Vec<PathBuf> = on_path
        .chain(["/usr/sbin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from))
        .collect();
    let program = |name: &str| {
        let places = folders.iter().map(|folder| folder.join(name));
        places.into_iter().find(|path| path.exists())
    };
    match (program("mariadbd"), program("mariadb-install-db")) {
        (Some(server), Some(install)) => Ok((server, install)),
        _ => bail!("mariadbd and mariadb-install-db were not found"),
    }
}

fn settings(folder: &Path, port: u16, durability: Durability) -> Result<Vec<String>> {
    let init = folder.join("init.sql");
    writeln!(
        std::fs::File::create(&init)?,
        "CREATE DATABASE IF NOT EXISTS postroom;\n\
         CREATE USER IF NOT EXISTS postroom@'%';\n\
         GRANT ALL ON *.* TO postroom@'%' WITH GRANT OPTION;"
    )?;
    let file = |name: &str| folder.join(name).display().to_string();
    let mut settings = vec![
        format!("--tmpdir={}", file("tmp")),
        format!("--port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--socket={}", file("socket")),
        format!("--pid-file={}", file("pid")),
        format!("--log-error={}", file("server.log")),
        format!("--init-file={}", init.display()),
        "--skip-name-resolve".to_owned(),
        "--max-connections=400".to_owned(),
        "--max-allowed-packet=256M".to_owned(),
        "--innodb-buffer-pool-size=256M".to_owned(),
        "--innodb-log-file-size=512M".to_owned(),
    ];
    if durability == Durability::Off {
        settings.extend(
            [
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-doublewrite=0",
                "--debug-no-sync",
            ]
            .map(str::to_owned),
        );
    }
    Ok(settings)
}

/// Starts the server under a shell that stops it when our end of the pipe closes.
fn keep_server(server: &Path, folder: &Path, arguments: &[String]) -> Result<Child> {
    let script = r#"
        trap '' INT TERM HUP
        folder="$1"; shift
        "$@" >/dev/null 2>&1 &
        read -r _
        kill -KILL "$(cat "$folder/pid")"
        wait
        rm -rf "$folder"/*
    "#;
    keep(
        Command::new("/bin/sh")
            .args(["-c", script, "keeper"])
            .arg(folder)
            .arg(server)
            .args(arguments),
    )
}
