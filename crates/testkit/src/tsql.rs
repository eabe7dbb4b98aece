//! Checks T-SQL without a server, by Microsoft's own parser and schema compiler. They come from PyPI, with a
//! runtime for them, into a folder under `target/`; nothing of them is kept anywhere else.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// The parser and the compiler (mssql-cli), a runtime, a bridge to it, and a wheel that carries libssl 1.1,
/// which the compiler needs and newer systems do not have.
const PACKAGES: [&str; 6] = [
    "mssql-cli==1.0.0",
    "dotnetcore2==3.1.23",
    "pythonnet>=3,<4",
    "clr-loader>=0.2,<1",
    "psycopg2-binary==2.9.5",
    "cffi",
];

/// One statement that is sent to a server.
#[derive(Debug)]
pub struct Statement {
    /// What errors call it.
    pub name: String,
    /// Its parameters, as a procedure declares them: `@P1 bigint, @P2 nvarchar(max)`.
    pub parameters: String,
    /// Its text.
    pub text: String,
}

/// What was found.
#[derive(Debug)]
pub struct Findings {
    /// One line each.
    pub problems: Vec<String>,
    /// Whether names were checked too, and not only the grammar; if not, why.
    pub validated: Result<(), String>,
}

/// Checks a schema and the statements that run on it. `None`, and it says so, when the checker is not here and
/// cannot be had.
///
/// # Panics
/// When it is there and does not work, and when it is missing although `CI=true`.
#[must_use]
pub fn check(schema: &str, statements: &[Statement]) -> Option<Findings> {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| install().map_err(|error| format!("{error:#}")));
    if let Err(reason) = installed {
        let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(
            !is_ci,
            "no T-SQL parser here, and with CI=true its tests must run: {reason}"
        );
        eprintln!("NOT RUN: there is no T-SQL parser: {reason}");
        return None;
    }
    Some(run(schema, statements).expect("the parser runs"))
}

fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    target.join("tsql")
}

/// A Python environment with the packages, made once.
fn install() -> Result<()> {
    let folder = folder();
    let ready = folder.join("ready");
    if ready.exists() {
        return Ok(());
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("its runtime is for Linux on x86-64");
    }
    step(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut pip = Command::new(folder.join("bin/pip"));
    step(pip.args(["install", "--quiet", "--no-deps"]).args(PACKAGES))?;
    let mut pip = Command::new(folder.join("bin/pip"));
    step(pip.args(["install", "--quiet", "pycparser"]))?;
    let packages = site_packages(&folder)?;
    for name in ["libssl", "libcrypto"] {
        let library = find_library(&packages.join("psycopg2_binary.libs"), name)?;
        let link = packages
            .join("psycopg2_binary.libs")
            .join(format!("{name}.so.1.1"));
        if !link.exists() {
            std::fs::copy(library, link)?;
        }
    }
    std::fs::write(ready, "")?;
    Ok(())
}

fn step(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{}", command.get_program().display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}", said.lines().last().unwrap_or("a step failed"));
    }
    Ok(())
}

fn site_packages(folder: &Path) -> Result<PathBuf> {
    let mut versions = std::fs::read_dir(folder.join("lib"))?;
    let version = versions.next().context("a Python")??;
    Ok(version.path().join("site-packages"))
}

fn find_library(folder: &Path, name: &str) -> Result<PathBuf> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with(&format!("{name}-"))
        {
            return Ok(entry.path());
        }
    }
    bail!("the packages came without {name}");
}

fn run(schema: &str, statements: &[Statement]) -> Result<Findings> {
    let folder = folder();
    let packages = site_packages(&folder)?;
    let statements: Vec<serde_json::Value> = statements
        .iter()
        .map(|statement| {
            serde_json::json!({
                "name": statement.name, "parameters": statement.parameters, "text": statement.text
            })
        })
        .collect();
    let asked = serde_json::json!({ "schema": schema, "statements": statements });
    let mut child = Command::new(folder.join("bin/python"))
        .args(["-c", include_str!("tsql.py")])
        .arg(packages.join("mssqlcli/mssqltoolsservice/bin"))
        .arg(packages.join("dotnetcore2/bin"))
        .env(
            "CLR_ICU_VERSION_OVERRIDE",
            icu_version().unwrap_or_default(),
        )
        .env("LD_LIBRARY_PATH", packages.join("psycopg2_binary.libs"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("a pipe")?;
    let text = asked.to_string();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output()?;
    let _ = writer.join();
    let said = String::from_utf8_lossy(&output.stdout);
    let mut problems: Vec<String> = said.lines().map(str::to_owned).collect();
    let last = problems.pop().unwrap_or_default();
    let validated = match last.strip_prefix("not validated: ") {
        _ if last == "validated" => Ok(()),
        Some(reason) => Err(reason.to_owned()),
        None => bail!(
            "the checker ended early: {last}\n{}",
            String::from_utf8_lossy(&output.stderr)
        ),
    };
    Ok(Findings {
        problems,
        validated,
    })
}

/// The runtime is older than this machine's ICU, and has to be told its version.
fn icu_version() -> Option<String> {
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .into_iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(Result::ok)
        .find_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let version = name.strip_prefix("libicuuc.so.")?;
            version.contains('.').then(|| version.to_owned())
        })
}
