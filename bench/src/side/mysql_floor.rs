//! The floor on MySQL: the statements that somebody would write by hand for the same tables, on bare
//! mysql_async connections, in as few round trips as they allow. They know nothing of joins.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Result;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params};
use postroom::Options;
use tokio::sync::Mutex;
use uuid::Uuid;

use super::library::message;
use super::{BATCH, BULK, DRAINERS, Floor, LEASE, TOPIC, all, payload};

const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))";

const COLUMNS: &str = "id, message_id, created_at, due_time, last_attempt_at, attempt_count, deferral_count, \
     delivery_count, topic, correlation_id, last_error, payload, headers";

pub(crate) struct MySqlFloor {
    connections: Vec<Arc<Mutex<Conn>>>,
    enqueue: String,
}

impl MySqlFloor {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let room = Options::new(url).dev_profile().connect().await?;
        let mut connections = Vec::new();
        for _ in 0..16 {
            let mut connection = Conn::from_url(url).await?;
            connection
                .query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                .await?;
            connections.push(Arc::new(Mutex::new(connection)));
        }
        let (_, statements) = room.outbox().statements(&message())?;
        Ok(Self {
            connections,
            enqueue: statements[0].sql.to_string(),
        })
    }
}

impl Floor for MySqlFloor {
    async fn clean(&self) -> Result<()> {
        let mut connection = self.connections[0].lock().await;
        let clean = "TRUNCATE TABLE outbox; TRUNCATE TABLE outbox_done";
        Ok(connection.query_drop(clean).await?)
    }

    async fn enqueue(&self, tasks: usize, per_task: usize) -> Result<()> {
        let work = self.connections.iter().take(tasks).map(|connection| {
            let (connection, sql) = (Arc::clone(connection), self.enqueue.clone());
            tokio::spawn(async move {
                let mut connection = connection.lock().await;
                let statement = connection.prep(sql).await?;
                for _ in 0..per_task {
                    connection.exec_drop(&statement, row()).await?;
                }
                Ok(())
            })
        });
        all(work).await
    }

    async fn bulk(&self, batches: usize) -> Result<()> {
        let mut connection = self.connections[0].lock().await;
        for _ in 0..batches {
            let mut sql = String::from(
                "INSERT INTO outbox (id, message_id, topic, payload, headers, correlation_id, due_time, created_at, \
                 next_attempt_at) VALUES ",
            );
            for number in 0..BULK {
                let id = Uuid::now_v7().simple();
                let comma = if number == 0 { "" } else { "," };
                let payload = payload();
                write!(
                    sql,
                    "{comma}(x'{id}', x'{id}', 'bench.topic', '{payload}', NULL, 'bench', NULL, {NOW}, {NOW})"
                )?;
            }
            connection.query_drop(sql).await?;
        }
        Ok(())
    }

    async fn drain(&self) -> Result<()> {
        let work = self.connections.iter().take(DRAINERS).map(|connection| {
            let connection = Arc::clone(connection);
            tokio::spawn(async move {
                let mut connection = connection.lock().await;
                while claim_and_ack(&mut connection).await? {}
                Ok(())
            })
        });
        all(work).await
    }
}

/// One batch, unless there is none. A deadlock undoes a transaction, which is tried again.
async fn claim_and_ack(connection: &mut Conn) -> Result<bool> {
    let owner = Uuid::now_v7().simple();
    let claim = format!(
        "START TRANSACTION; SELECT id, payload FROM outbox FORCE INDEX (outbox_ready) \
         WHERE next_attempt_at <= {NOW} AND (locked_until IS NULL OR locked_until < {NOW}) \
         ORDER BY next_attempt_at LIMIT {BATCH} FOR UPDATE SKIP LOCKED"
    );
    let messages = match pick(connection, claim).await {
        Ok(messages) => messages,
        Err(error) => return was_undone(Err(error)),
    };
    if messages.is_empty() {
        connection.query_drop("COMMIT").await?;
        return Ok(false);
    }
    let mut ids = String::new();
    for (id, _) in &messages {
        let comma = if ids.is_empty() { "" } else { "," };
        write!(ids, "{comma}x'{}'", Uuid::from_slice(id)?.simple())?;
    }
    let lease = LEASE.as_micros();
    let lock = format!(
        "UPDATE outbox SET owner_token = x'{owner}', locked_until = {NOW} + {lease}, \
         delivery_count = delivery_count + 1 WHERE id IN ({ids}); COMMIT"
    );
    if was_undone(connection.query_drop(lock).await)? {
        return Ok(true);
    }
    let ack = format!(
        "START TRANSACTION; INSERT INTO outbox_done ({COLUMNS}, processed_at, processed_by) \
         SELECT {COLUMNS}, {NOW}, 'floor' FROM outbox WHERE id IN ({ids}) AND owner_token = x'{owner}' FOR UPDATE; \
         DELETE FROM outbox WHERE id IN ({ids}) AND owner_token = x'{owner}'; COMMIT"
    );
    while was_undone(connection.query_drop(&ack).await)? {}
    Ok(true)
}

/// The messages that a claim picks.
async fn pick(connection: &mut Conn, claim: String) -> mysql_async::Result<Vec<(Vec<u8>, String)>> {
    let mut claimed = connection.query_iter(claim).await?;
    claimed.collect::<mysql_async::Row>().await?;
    let messages = claimed.collect().await?;
    claimed.drop_result().await?;
    Ok(messages)
}

fn was_undone(result: mysql_async::Result<()>) -> Result<bool> {
    match result {
        Err(mysql_async::Error::Server(error)) if error.code == 1213 => Ok(true),
        other => Ok(other.map(|()| false)?),
    }
}

fn row() -> Params {
    let id = mysql_async::Value::Bytes(Uuid::now_v7().as_bytes().to_vec());
    let null = mysql_async::Value::NULL;
    // As many as the statement has question marks: it names the due time twice.
    Params::Positional(vec![
        id.clone(),
        id,
        TOPIC.into(),
        payload().into(),
        null.clone(),
        "bench".into(),
        null.clone(),
        null,
    ])
}
