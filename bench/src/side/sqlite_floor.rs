//! The floor on SQLite: the library's own statements on bare rusqlite connections, one per thread,
//! one transaction per call, with the same durability.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use postroom::{Operation, Options, Value};
use rusqlite::{Connection, TransactionBehavior, params_from_iter};
use uuid::Uuid;

use super::library::message;
use super::{BATCH, BULK, DRAINERS, Floor, LEASE, row};

pub(crate) struct SqliteFloor {
    path: PathBuf,
    enqueue: String,
    claim: Operation,
    ack: Operation,
}

impl SqliteFloor {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let path = url.strip_prefix("sqlite:").context("a file")?.into();
        let room = Options::new(url).dev_profile().connect().await?;
        let operations = Options::new("sqlite:").operations()?;
        let operation = |name: &str| {
            operations
                .iter()
                .find(|operation| operation.name == name)
                .cloned()
                .context("an operation")
        };
        let (_, statements) = room.outbox().statements(&message())?;
        Ok(Self {
            path,
            enqueue: statements[0].sql.to_string(),
            claim: operation("outbox claim")?,
            ack: operation("outbox ack")?,
        })
    }

    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.path)?;
        connection.busy_timeout(Duration::from_secs(60))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 20_000)?;
        Ok(connection)
    }

    fn threads(&self, count: usize, work: impl Fn(Connection) -> Result<()> + Sync) -> Result<()> {
        thread::scope(|scope| {
            let handles: Vec<_> = (0..count)
                .map(|_| scope.spawn(|| work(self.connect()?)))
                .collect();
            handles
                .into_iter()
                .try_for_each(|handle| handle.join().expect("a floor thread"))
        })
    }
}

impl Floor for SqliteFloor {
    async fn clean(&self) -> Result<()> {
        let clean = "DELETE FROM outbox; DELETE FROM outbox_done; PRAGMA wal_checkpoint(TRUNCATE)";
        Ok(self.connect()?.execute_batch(clean)?)
    }

    async fn enqueue(&self, tasks: usize, per_task: usize) -> Result<()> {
        self.threads(tasks, |mut connection| {
            for _ in 0..per_task {
                let transaction =
                    connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                transaction
                    .prepare_cached(&self.enqueue)?
                    .execute(params_from_iter(row()))?;
                transaction.commit()?;
            }
            Ok(())
        })
    }

    async fn bulk(&self, batches: usize) -> Result<()> {
        let mut connection = self.connect()?;
        for _ in 0..batches {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for _ in 0..BULK {
                transaction
                    .prepare_cached(&self.enqueue)?
                    .execute(params_from_iter(row()))?;
            }
            transaction.commit()?;
        }
        Ok(())
    }

    async fn drain(&self) -> Result<()> {
        self.threads(DRAINERS, |mut connection| {
            loop {
                let owner = Uuid::now_v7();
                let lease = i64::try_from(LEASE.as_micros())?;
                let values = [
                    owner.into(),
                    lease.into(),
                    i64::try_from(BATCH)?.into(),
                    Value::Int(None),
                ];
                let ids = run(&mut connection, &self.claim, &values)?;
                if ids.is_empty() {
                    return Ok(());
                }
                run(
                    &mut connection,
                    &self.ack,
                    &[owner.into(), ids.into(), "floor".into(), 1.into()],
                )?;
            }
        })
    }
}

/// Runs an operation in one transaction and gives back the ids in its rows.
fn run(connection: &mut Connection, operation: &Operation, values: &[Value]) -> Result<Vec<Uuid>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut ids = Vec::new();
    let mut changed = true;
    for statement in &operation.statements {
        if statement.if_changed && !changed {
            continue;
        }
        let before = transaction.total_changes();
        let mut prepared = transaction.prepare_cached(&statement.sql)?;
        let parameters = statement
            .parameters
            .iter()
            .map(|number| &values[number - 1]);
        let columns = prepared.column_count();
        let mut rows = prepared.query(params_from_iter(parameters))?;
        while let Some(row) = rows.next()? {
            if let Some(id) = row.get::<_, Option<Vec<u8>>>(0)? {
                ids.push(Uuid::from_slice(&id)?);
            }
            if columns > 6 {
                let _payload: String = row.get(3)?;
            }
        }
        drop(rows);
        if !statement.if_changed {
            changed = transaction.total_changes() > before;
        }
    }
    transaction.commit()?;
    Ok(ids)
}
