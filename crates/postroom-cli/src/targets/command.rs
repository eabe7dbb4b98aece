//! Messages as the standard input of a program. No shell is involved: what is in a message or in an
//! argument is never taken for a command.

use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postroom::{Delivery, HandlerError, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};

use crate::config::CommandTarget;

/// What programs may know of our environment, which holds secrets.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

/// `EX_DATAERR`: the message is wrong, and no retry can help.
const DATA_ERROR: i32 = 65;

/// `EX_TEMPFAIL`: something is away, try again later.
const TEMPORARY: i32 = 75;

/// How much of what a program says last is kept.
const LAST_WORDS: usize = 1024;

/// How long what a program has said may still be on its way when it has ended.
const AFTERTHOUGHT: Duration = Duration::from_millis(200);

/// A program that takes messages.
pub(super) struct Program {
    argv: Vec<String>,
    timeout: Duration,
}

impl Program {
    pub(super) fn new(target: &CommandTarget) -> Self {
        Self {
            argv: target.argv.clone(),
            timeout: target.timeout,
        }
    }

    /// Runs the program once. Its exit code decides: 0 is done, 65 is dead, 75 is later.
    pub(super) async fn deliver(&self, delivery: &Delivery) -> Result<Outcome, HandlerError> {
        let mut child = self.start(delivery)?;
        // Also when this future is dropped: the lease is lost, or the daemon has to stop.
        let group = Group::of(&child);
        let said = Mutex::default();
        let ended = tokio::time::timeout(
            self.timeout,
            run(&mut child, delivery.payload().as_bytes(), &said),
        )
        .await;
        match ended {
            Ok(status) => {
                group.leave();
                judge(status?, &last_line(&said))
            }
            Err(_) => Err(HandlerError::business(format!(
                "the command did not end within {:?} and was killed",
                self.timeout
            ))),
        }
    }

    fn start(&self, delivery: &Delivery) -> Result<Child, HandlerError> {
        let (program, arguments) = self
            .argv
            .split_first()
            .ok_or_else(|| HandlerError::permanent("the target has no command"))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(
                INHERITED
                    .iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .env("POSTROOM_TOPIC", delivery.topic())
            .env("POSTROOM_MESSAGE_ID", delivery.message_id())
            .env("POSTROOM_ATTEMPT", delivery.attempt().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(correlation_id) = delivery.correlation_id() {
            command.env("POSTROOM_CORRELATION_ID", correlation_id);
        }
        #[cfg(unix)]
        command.process_group(0);
        // It may be installed, or be made executable, or find memory, before the time for that is over.
        command.spawn().map_err(|error| {
            HandlerError::infrastructure(format!("`{program}` cannot be started: {error}"))
        })
    }
}

/// Feeds the child and listens to it until it ends. It need not read all of its input, and what it has
/// started may keep its output open for longer than it lives.
async fn run(
    child: &mut Child,
    input: &[u8],
    said: &Mutex<Vec<u8>>,
) -> std::io::Result<ExitStatus> {
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let mut listening = std::pin::pin!(listen(stderr, said));
    let mut heard = false;
    let talking = async {
        tokio::join!(feed(stdin, input), async {
            listening.as_mut().await;
            heard = true;
        });
        std::future::pending().await
    };
    let status = tokio::select! {
        status = child.wait() => status,
        never = talking => never,
    };
    if !heard {
        let _ = tokio::time::timeout(AFTERTHOUGHT, listening).await;
    }
    status
}

async fn feed(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(input).await;
    }
}

/// Keeps the end of what it says.
async fn listen(stderr: Option<ChildStderr>, said: &Mutex<Vec<u8>>) {
    let Some(mut stderr) = stderr else {
        return;
    };
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(&buffer[..read]);
        // Twice as much, so that a newline at the end does not hide the line before it.
        let surplus = said.len().saturating_sub(2 * LAST_WORDS);
        said.drain(..surplus);
    }
}

/// The last line that has something on it.
fn last_line(said: &Mutex<Vec<u8>>) -> String {
    let said = said.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&said);
    let line = text
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty());
    let line: String = line
        .unwrap_or_default()
        .chars()
        .filter(|character| !character.is_control())
        .collect();
    let end = line
        .char_indices()
        .map(|(start, character)| start + character.len_utf8())
        .take_while(|end| *end <= LAST_WORDS)
        .last();
    line[..end.unwrap_or(0)].to_owned()
}

fn judge(status: ExitStatus, said: &str) -> Result<Outcome, HandlerError> {
    let how = match status.code() {
        Some(0) => return Ok(Outcome::Done),
        Some(code) => format!("the command ended with exit code {code}"),
        None => "the command was ended by a signal".to_owned(),
    };
    let text = if said.is_empty() {
        how
    } else {
        format!("{how}: {said}")
    };
    Err(match status.code() {
        Some(DATA_ERROR) => HandlerError::permanent(text),
        Some(TEMPORARY) => HandlerError::infrastructure(text),
        _ => HandlerError::business(text),
    })
}

/// The child and all that it has started. They are killed together, unless the child has ended by itself.
struct Group {
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
}

impl Group {
    #[cfg(unix)]
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            leader: id.and_then(rustix::process::Pid::from_raw),
        }
    }

    #[cfg(not(unix))]
    fn of(_: &Child) -> Self {
        Self {}
    }

    /// Whatever it has left behind may go on.
    fn leave(mut self) {
        #[cfg(unix)]
        {
            self.leader = None;
        }
        #[cfg(not(unix))]
        let _ = &mut self;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(leader) = self.leader {
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}
