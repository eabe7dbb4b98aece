//! Who takes part: the library, or the floor of a database.

use std::time::Duration;

use anyhow::Result;
use postroom::{Delivery, Message, OwnerToken, Postroom, Running};

use crate::classic_floor::ClassicFloor;
use crate::daemon::Daemon;
use crate::mysql_floor::MySqlFloor;
use crate::postgres_floor::PostgresFloor;
use crate::sqlite_floor::SqliteFloor;

/// How many messages a bulk statement and a claim carry.
pub(crate) const BULK: usize = 1_000;
pub(crate) const BATCH: usize = 200;
/// What a dispatcher beside producers may take at once: whatever has come meanwhile.
pub(crate) const DISPATCH_BATCH: usize = 500;
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// A message as every contender enqueues it: 200 bytes of payload.
pub(crate) fn message() -> Message {
    Message::new("bench.topic", "x".repeat(200)).correlation("bench")
}

/// One side of a comparison.
pub(crate) enum Contender {
    Library(Postroom),
    /// The library's dispatcher with a handler that does nothing.
    Dispatcher(Postroom),
    /// The daemon, over HTTP.
    Daemon(Daemon),
    ClassicFloor(ClassicFloor),
    MySqlFloor(MySqlFloor),
    PostgresFloor(PostgresFloor),
    SqliteFloor(SqliteFloor),
}

impl Contender {
    /// `tasks` tasks at once enqueue one message at a time.
    pub(crate) async fn enqueue(&self, tasks: usize, per_task: usize) -> Result<()> {
        match self {
            Self::Library(room) | Self::Dispatcher(room) => {
                let work = (0..tasks).map(|_| {
                    let outbox = room.outbox();
                    tokio::spawn(async move {
                        for _ in 0..per_task {
                            outbox.enqueue(&message()).await?;
                        }
                        anyhow::Ok(())
                    })
                });
                all(work).await
            }
            Self::MySqlFloor(floor) => floor.enqueue(tasks, per_task).await,
            Self::PostgresFloor(floor) => floor.enqueue(tasks, per_task).await,
            Self::SqliteFloor(floor) => floor.enqueue(tasks, per_task),
            Self::Daemon(daemon) => daemon.enqueue(tasks, per_task).await,
            Self::ClassicFloor(_) => anyhow::bail!("not measured"),
        }
    }

    /// One task enqueues in batches of [`BULK`].
    pub(crate) async fn bulk(&self, batches: usize) -> Result<()> {
        let messages: Vec<Message> = (0..BULK).map(|_| message()).collect();
        match self {
            Self::Library(room) | Self::Dispatcher(room) => {
                for _ in 0..batches {
                    room.outbox().enqueue_many(&messages).await?;
                }
                Ok(())
            }
            Self::MySqlFloor(floor) => floor.bulk(batches).await,
            Self::PostgresFloor(floor) => floor.bulk(batches).await,
            Self::SqliteFloor(floor) => floor.bulk(batches),
            Self::ClassicFloor(floor) => floor.bulk(batches).await,
            Self::Daemon(_) => anyhow::bail!("not measured"),
        }
    }

    /// `tasks` tasks claim and ack until nothing is left of the messages.
    pub(crate) async fn drain(&self, tasks: usize, messages: usize) -> Result<()> {
        match self {
            Self::Dispatcher(room) => {
                let running = dispatch(room, BATCH)?;
                while running.report().done < messages as u64 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                running.stop().await;
                Ok(())
            }
            Self::ClassicFloor(floor) => floor.drain(tasks).await,
            Self::Library(room) => {
                let work = (0..tasks).map(|_| {
                    let outbox = room.outbox();
                    tokio::spawn(async move {
                        loop {
                            let owner = OwnerToken::new();
                            let claimed = outbox.claim(owner, LEASE, BATCH).await?;
                            if claimed.is_empty() {
                                return anyhow::Ok(());
                            }
                            let ids: Vec<_> = claimed.iter().map(|message| message.id).collect();
                            outbox.ack(owner, &ids).await?;
                        }
                    })
                });
                all(work).await
            }
            Self::MySqlFloor(floor) => floor.drain(tasks).await,
            Self::PostgresFloor(floor) => floor.drain(tasks).await,
            Self::SqliteFloor(floor) => floor.drain(tasks),
            Self::Daemon(_) => anyhow::bail!("not measured"),
        }
    }
}

/// A dispatcher whose handler does nothing.
pub(crate) fn dispatch(room: &Postroom, batch: usize) -> Result<Running> {
    let dispatcher = room.dispatcher().batch(batch);
    Ok(dispatcher
        .on("bench.topic", |_: Delivery| async {})
        .start()?)
}

pub(crate) async fn all(
    work: impl Iterator<Item = tokio::task::JoinHandle<Result<()>>>,
) -> Result<()> {
    let work: Vec<_> = work.collect();
    for task in work {
        task.await??;
    }
    Ok(())
}
