//! Waking workers in other processes with NOTIFY, never inside a caller's transaction: NOTIFY takes a
//! lock that all notifying commits share, fails a commit when its queue is full, and forbids two-phase
//! commit. A connection of ours sends it after the commit, at most every few milliseconds.
//! A wake-up that is lost costs time, never a message: workers poll as well.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Config};
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use super::Shared;
use crate::db::Wakes;
use crate::sql::Call;

/// The pause between two notifications while messages keep coming: whoever was asleep is awake by then.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// How many times a row is looked for whose transaction has not committed yet, and the first pause.
const LOOKS: u32 = 10;
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// The pauses after a listening connection was lost.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// Tells workers of other processes that there is something to do in one queue.
#[derive(Debug, Default)]
pub(super) struct Announcer {
    state: Mutex<State>,
    /// Something was committed while promised rows were looked for.
    committed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Something was committed and not announced yet.
    committed: bool,
    /// Written in a caller's transaction, whose end we cannot see.
    promised: Vec<Uuid>,
    /// How often the promised rows were looked for in vain.
    looks: u32,
    running: bool,
}

/// More promises than these are not remembered: one that is kept stands for the others.
const PROMISES: usize = 8;

impl Announcer {
    /// Announces what was committed, or what the row `promised` will be once its transaction commits.
    /// `calls` makes what makes the statement, and is asked only when a task has to be started.
    pub(super) fn announce<C>(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        promised: Option<Uuid>,
        calls: impl FnOnce() -> C,
    ) where
        C: Fn(&[Uuid]) -> Call + Send + Sync + 'static,
    {
        // Without a runtime (a synchronous caller) polling finds the message.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let mut state = self.state();
        match promised {
            None => {
                state.committed = true;
                self.committed.notify_one();
            }
            Some(id) => {
                if state.promised.len() == PROMISES {
                    state.promised.remove(0);
                }
                state.promised.push(id);
                state.looks = 0;
            }
        }
        if !std::mem::replace(&mut state.running, true) {
            let task = Task(Arc::clone(self));
            let (shared, call) = (Arc::clone(shared), calls());
            runtime.spawn(async move { task.0.run(&shared, call).await });
        }
    }

    async fn run(&self, shared: &Shared, call: impl Fn(&[Uuid]) -> Call) {
        let mut pause = SHORTEST_PAUSE;
        while let Some(promised) = self.next() {
            let told = match shared.statement(&call(&promised)).await {
                Ok(output) => !output.rows.is_empty(),
                Err(error) => {
                    tracing::debug!(%error, "a wake-up was not sent; polling will find the message");
                    self.state().promised.clear();
                    true
                }
            };
            if !told {
                // The rows cannot be seen yet. What is committed meanwhile must not wait for them.
                tokio::select! {
                    () = tokio::time::sleep(self.looked_in_vain()) => {}
                    () = self.committed.notified() => {}
                }
                continue;
            }
            if !promised.is_empty() {
                let mut state = self.state();
                state.promised.retain(|id| !promised.contains(id));
                state.looks = 0;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// What is to be announced: what was committed (no rows), or rows that may show by now. `None` ends the
    /// task.
    fn next(&self) -> Option<Vec<Uuid>> {
        let mut state = self.state();
        if std::mem::take(&mut state.committed) {
            return Some(Vec::new());
        }
        if state.looks >= LOOKS {
            // Rolled back, or open for long: polling finds it.
            state.promised.clear();
        }
        if state.promised.is_empty() {
            state.running = false;
            return None;
        }
        Some(state.promised.clone())
    }

    /// Says how long to wait for the next look.
    fn looked_in_vain(&self) -> Duration {
        let mut state = self.state();
        state.looks += 1;
        FIRST_LOOK * (1 << (state.looks - 1).min(LOOKS))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The running task. When its runtime ends before it does, another may start.
struct Task(Arc<Announcer>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.state().running = false;
    }
}

/// Listens until it is dropped, on a connection of its own that is made again whenever it breaks.
pub(super) async fn listen(config: Config, tls: MakeRustlsConnect, wakes: Wakes) {
    let mut pause = FIRST_RETRY;
    loop {
        if listen_once(&config, &tls, &wakes).await.is_ok() {
            pause = FIRST_RETRY;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY);
    }
}

/// Comes back when the connection breaks: `Ok` when it had listened before.
async fn listen_once(
    config: &Config,
    tls: &MakeRustlsConnect,
    wakes: &Wakes,
) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(tls.clone()).await?;
    let commands: String = wakes
        .iter()
        .map(|(channel, _)| format!("LISTEN \"{channel}\";"))
        .collect();
    let messages = async {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                wakes
                    .iter()
                    .filter(|(channel, _)| channel == notification.channel())
                    .for_each(|(_, wake)| wake.wake());
            }
        }
    };
    let commands = async {
        client.batch_execute(&commands).await?;
        // What was enqueued while nobody listened.
        wakes.iter().for_each(|(_, wake)| wake.wake());
        std::future::pending::<Result<(), tokio_postgres::Error>>().await
    };
    tokio::select! {
        () = messages => Ok(()),
        listening = commands => listening,
    }
}
