//! The floor on PostgreSQL: the library's own statements, prepared once, on bare tokio-postgres
//! connections.

use std::sync::Arc;

use anyhow::{Context, Result};
use postroom::Options;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use super::library::message;
use super::{BATCH, BULK, DRAINERS, Floor, LEASE, TOPIC, all, latency, payload, row};
use crate::protocol::Answer;

pub(crate) struct PostgresFloor {
    url: String,
    schema: String,
    clients: Vec<Arc<Client>>,
    enqueue: String,
    bulk: String,
    claim: String,
    ack: String,
}

impl PostgresFloor {
    pub(crate) async fn open(url: &str, schema: &str) -> Result<Self> {
        let options = Options::new(url).schema(schema).dev_profile();
        let room = options.connect().await?;
        let mut clients = Vec::new();
        for _ in 0..16 {
            clients.push(Arc::new(connect(url).await?));
        }
        let operations = Options::new("postgres:").schema(schema).operations()?;
        let operation = |name: &str| {
            let operation = operations.iter().find(|operation| operation.name == name);
            operation
                .map(|operation| operation.statements[0].sql.clone())
                .context("an operation")
        };
        let (_, statements) = room.outbox().statements(&message())?;
        let table = format!("\"{schema}\".\"outbox\"");
        Ok(Self {
            url: url.to_owned(),
            schema: schema.to_owned(),
            clients,
            enqueue: statements[0].sql.to_string(),
            bulk: include_str!("../../../crates/postroom/src/sql/postgres/enqueue_many.sql")
                .replace("{outbox}", &table),
            claim: operation("outbox claim")?,
            ack: operation("outbox ack")?,
        })
    }
}

impl Floor for PostgresFloor {
    async fn clean(&self) -> Result<()> {
        let schema = &self.schema;
        let clean = format!("TRUNCATE \"{schema}\".outbox, \"{schema}\".outbox_done");
        Ok(self.clients[0].batch_execute(&clean).await?)
    }

    async fn latency(&self, samples: usize) -> Result<Answer> {
        latency::floor(&self.url, &self.enqueue, &self.claim, samples).await
    }

    async fn enqueue(&self, tasks: usize, per_task: usize) -> Result<()> {
        let work = self.clients.iter().take(tasks).map(|client| {
            let (client, sql) = (Arc::clone(client), self.enqueue.clone());
            tokio::spawn(async move {
                let statement = client.prepare(&sql).await?;
                for _ in 0..per_task {
                    let message = row();
                    let values: Vec<&(dyn ToSql + Sync)> =
                        message.iter().map(|value| value as _).collect();
                    client.execute(&statement, &values).await?;
                }
                Ok(())
            })
        });
        all(work).await
    }

    async fn bulk(&self, batches: usize) -> Result<()> {
        let client = &self.clients[0];
        let statement = client.prepare(&self.bulk).await?;
        for _ in 0..batches {
            let ids: Vec<Uuid> = (0..BULK).map(|_| Uuid::now_v7()).collect();
            let topics = vec![TOPIC; BULK];
            let payloads: Vec<String> = (0..BULK).map(|_| payload()).collect();
            let headers: Vec<Option<&str>> = vec![None; BULK];
            let correlations = vec!["bench"; BULK];
            let dues: Vec<Option<i64>> = vec![None; BULK];
            client
                .execute(
                    &statement,
                    &[
                        &ids,
                        &ids,
                        &topics,
                        &payloads,
                        &headers,
                        &correlations,
                        &dues,
                    ],
                )
                .await?;
        }
        Ok(())
    }

    /// As a dispatcher that has just been started, it opens its connections first.
    async fn drain(&self) -> Result<()> {
        let work = (0..DRAINERS).map(|_| {
            let (url, claim, ack) = (self.url.clone(), self.claim.clone(), self.ack.clone());
            tokio::spawn(async move {
                let client = connect(&url).await?;
                let (claim, ack) = (client.prepare(&claim).await?, client.prepare(&ack).await?);
                loop {
                    let owner = Uuid::now_v7();
                    let lease = i64::try_from(LEASE.as_micros())?;
                    let (batch, from) = (i64::try_from(BATCH)?, None::<i64>);
                    let rows = client
                        .query(&claim, &[&owner, &lease, &batch, &from, &1_i64])
                        .await?;
                    if rows.is_empty() {
                        return Ok(());
                    }
                    let messages: Vec<(Uuid, String)> =
                        rows.iter().map(|row| (row.get(0), row.get(3))).collect();
                    let ids: Vec<Uuid> = messages.iter().map(|(id, _)| *id).collect();
                    client
                        .query(&ack, &[&owner, &ids, &"floor", &1_i64])
                        .await?;
                }
            })
        });
        all(work).await
    }
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
