//! A real browser for tests of pages: Chromium without a window, driven by chromedriver. It is found on
//! this machine, or installed where that is allowed, and it is gone when its owner is.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// What Chromium is started with: no window, no sandbox (tests may run as root), and nothing that would
/// talk to the internet.
const ARGUMENTS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// A running chromedriver. It stops, and its browsers with it, when this is dropped.
#[derive(Debug)]
pub struct Driver {
    child: Child,
    address: SocketAddr,
    chromium: PathBuf,
    folder: TempDir,
}

impl Driver {
    /// Starts one on a free port. `None` when there is no browser here and none can be had; it says so.
    ///
    /// # Panics
    /// When it is there and does not start, and when it is missing although `CI=true`.
    #[must_use]
    pub fn start() -> Option<Self> {
        match installed() {
            Ok((chromium, chromedriver)) => {
                Some(Self::launch(chromium, chromedriver).expect("chromedriver starts"))
            }
            Err(reason) => {
                assert!(
                    !is_ci(),
                    "no browser here, and with CI=true its tests must run: {reason}"
                );
                eprintln!("NOT RUN: {reason}");
                None
            }
        }
    }

    fn launch(chromium: &Path, chromedriver: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("postroom-browser-")
            .tempdir()?;
        let mut child = Command::new(chromedriver)
            .arg("--port=0")
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("starting chromedriver")?;
        let output = child.stdout.take().context("a pipe")?;
        let mut lines = BufReader::new(output).lines();
        let port = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| port_in(&line));
        let Some(port) = port else {
            let _ = child.kill();
            let _ = child.wait();
            bail!("chromedriver did not say where it listens");
        };
        // Whoever writes into a pipe that nobody reads stands still some day.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(Self {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            chromium: chromium.to_owned(),
            folder,
        })
    }

    /// Where it listens: `http://127.0.0.1:1234`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The browser to start, for `goog:chromeOptions.binary`.
    #[must_use]
    pub fn chromium(&self) -> &Path {
        &self.chromium
    }

    /// Its arguments, for `goog:chromeOptions.args`, with a profile that nobody has used.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let profile = self.folder.path().join("profile");
        let profile = format!("--user-data-dir={}", profile.display());
        let arguments = ARGUMENTS.into_iter().map(str::to_owned);
        arguments.chain([profile]).collect()
    }

    /// Asks it to end its browsers and itself.
    fn shut_down(&self) -> std::io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(5);
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let host = self.address;
        write!(
            stream,
            "GET /shutdown HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.shut_down();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `ChromeDriver was started successfully on port 1234.`
fn port_in(line: &str) -> Option<u16> {
    let (_, rest) = line.split_once("successfully on port ")?;
    rest.trim_end_matches('.').parse().ok()
}

/// The browser and its driver: found once, or else installed once.
fn installed() -> Result<(&'static Path, &'static Path), &'static str> {
    static INSTALLED: OnceLock<Result<(PathBuf, PathBuf), String>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| match find() {
        Some(found) => Ok(found),
        None => install()
            .and_then(|()| find().context("the packages came without a browser"))
            .map_err(|error| format!("there is no Chromium with its chromedriver: {error:#}")),
    });
    match installed {
        Ok((chromium, chromedriver)) => Ok((chromium, chromedriver)),
        Err(reason) => Err(reason),
    }
}

fn find() -> Option<(PathBuf, PathBuf)> {
    let chromium = ["chromium", "chromium-browser", "google-chrome"];
    let chromium = chromium.into_iter().find_map(on_path)?;
    Some((chromium, on_path("chromedriver")?))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Installs Debian's packages, but only where a machine is there for tests.
fn install() -> Result<()> {
    if !is_ci() {
        bail!("install chromium and chromedriver (Debian: chromium, chromium-driver)");
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!("this is no Debian, so it cannot be installed");
    }
    apt_get(&["update", "-qq"])?;
    apt_get(&[
        "install",
        "-y",
        "-qq",
        "--no-install-recommends",
        "chromium",
        "chromium-driver",
        "fonts-liberation",
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

fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}
