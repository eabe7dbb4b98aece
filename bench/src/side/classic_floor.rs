//! What most hand-written outboxes look like on PostgreSQL: one table whose status flips from ready to
//! claimed to done, with an index on (status, created_at). The same number of connections, the same
//! batch, the best statements that shape allows.

use std::sync::Arc;

use anyhow::Result;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use super::{BATCH, BULK, DRAINERS, Floor, all, not_measured, payload};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS classic (
        id uuid PRIMARY KEY,
        topic text NOT NULL,
        payload text NOT NULL,
        correlation_id text,
        status smallint NOT NULL DEFAULT 0,
        created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
        locked_until timestamptz,
        owner_token uuid,
        processed_at timestamptz);
    CREATE INDEX IF NOT EXISTS classic_ready ON classic (status, created_at)";

const CLAIM: &str = "
    UPDATE classic
    SET status = 1, owner_token = $1, locked_until = statement_timestamp() + interval '60 seconds'
    WHERE id IN (
        SELECT id FROM classic WHERE status = 0 ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)
    RETURNING id, topic, payload, correlation_id, created_at";

const ACK: &str = "
    UPDATE classic
    SET status = 2, processed_at = statement_timestamp(), owner_token = NULL, locked_until = NULL
    WHERE id = ANY ($2) AND owner_token = $1";

pub(crate) struct ClassicFloor {
    clients: Vec<Arc<Client>>,
}

impl ClassicFloor {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..DRAINERS {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            clients.push(Arc::new(client));
        }
        clients[0].batch_execute(SCHEMA).await?;
        Ok(Self { clients })
    }
}

impl Floor for ClassicFloor {
    async fn clean(&self) -> Result<()> {
        Ok(self.clients[0].batch_execute("TRUNCATE classic").await?)
    }

    async fn enqueue(&self, _tasks: usize, _per_task: usize) -> Result<()> {
        not_measured()
    }

    async fn bulk(&self, batches: usize) -> Result<()> {
        let insert = "INSERT INTO classic (id, topic, payload, correlation_id)
                      SELECT id, 'bench.topic', payload, 'bench'
                      FROM unnest($1::uuid[], $2::text[]) AS u (id, payload)";
        for _ in 0..batches {
            let ids: Vec<Uuid> = (0..BULK).map(|_| Uuid::now_v7()).collect();
            let payloads: Vec<String> = (0..BULK).map(|_| payload()).collect();
            self.clients[0].execute(insert, &[&ids, &payloads]).await?;
        }
        Ok(())
    }

    async fn drain(&self) -> Result<()> {
        // It too gets fresh statistics: without them its claim can turn into a scan.
        self.clients[0].batch_execute("ANALYZE classic").await?;
        let work = self.clients.iter().take(DRAINERS).map(|client| {
            let client = Arc::clone(client);
            tokio::spawn(async move {
                let (claim, ack) = (client.prepare(CLAIM).await?, client.prepare(ACK).await?);
                loop {
                    let owner = Uuid::now_v7();
                    let batch = i64::try_from(BATCH)?;
                    let rows = client.query(&claim, &[&owner, &batch]).await?;
                    if rows.is_empty() {
                        return Ok(());
                    }
                    let messages: Vec<(Uuid, String)> =
                        rows.iter().map(|row| (row.get(0), row.get(2))).collect();
                    let ids: Vec<Uuid> = messages.iter().map(|(id, _)| *id).collect();
                    client.execute(&ack, &[&owner, &ids]).await?;
                }
            })
        });
        all(work).await
    }
}
