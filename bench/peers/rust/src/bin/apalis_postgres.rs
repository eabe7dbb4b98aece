//! The crate apalis-postgres as a peer.
//!
//! Tuned, by medians of alternating drains of 50,000 on two shared cores (messages per second;
//! in force: 4 workers in the process, each with a batch of 1,000 and a concurrency of 1,000,
//! polling every 10 ms when it found nothing):
//!
//! | setting | drained per second |
//! |---|---|
//! | **in force** | **15,900** |
//! | 1 worker, batch and concurrency 10 (the default batch) | 1,500 |
//! | 1 worker, batch and concurrency 1,000 (another run; 4 workers there: 13,900) | 6,600 |
//! | 1 worker, batch and concurrency 5,000 (that run) | 7,800 |
//! | 4 workers, batch and concurrency 250 (that run) | 11,300 |
//! | 4 workers, batch and concurrency 2,000 | 15,200 |
//! | 4 workers, batch 1,000, concurrency 16 (another run; in force there: 16,800) | 14,600 |
//! | 6 workers | 15,100 |
//! | without `lock_tasks` | 16,400, within the noise; the default keeps tasks safer |
//! | notified (`with_pubsub`) instead of polling | 17,100, within the noise |
//!
//! One message is enqueued by `queries::push_tasks` on a connection, as its documentation shows
//! for pubsub: `PostgresStorage::push` opens a transaction around the same statement (578 to 325
//! per second with one task; 665 to 672 with sixteen). In the steady state one worker beat four
//! (1,300 to 1,100). Polling beat being notified there: in 2 of 6 rounds a notified worker left
//! messages waiting until the next heartbeat, half a minute later. Idle latency is measured notified, with a poll each second behind it. The pool
//! does not ping a connection before each use, which sqlx does by default.
//!
//! Results are persisted, as by default: without them a task never becomes `Done`. The end of a
//! drain is the end of a graceful stop, which writes the results that are still in a batch; one
//! that was timed took 68 ms.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage, queries};
use protocol::{Handled, Payload, Peer, Workload};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::task::JoinSet;

/// As pinned in Cargo.toml.
const VERSION: &str = "1.0.0";
const QUEUE: &str = "bench";
const BATCH: usize = 1_000;
const POLL: Duration = Duration::from_millis(10);
const POLL_BEHIND_NOTIFICATIONS: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<()> {
    protocol::serve::<Apalis>().await
}

async fn handle(payload: Payload, handled: Data<Arc<Handled>>) {
    handled.message(payload.at);
}

struct Apalis {
    url: String,
    pool: PgPool,
}

impl Peer for Apalis {
    type Producer = PgPool;
    type Worker = (Vec<WorkerContext>, JoinSet<Result<()>>);

    async fn deploy(url: String) -> Result<Self> {
        let pool = connected(&url, 1).await?;
        PostgresStorage::setup(&pool).await?;
        Ok(Apalis { url, pool })
    }

    fn name(&self) -> String {
        format!("apalis-postgres {VERSION}")
    }

    async fn clean(&self) -> Result<()> {
        sqlx::query("truncate apalis.jobs")
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn unfinished(&self) -> Result<u64> {
        let query = "select count(*) from apalis.jobs where status <> 'Done'";
        let count: i64 = sqlx::query_scalar(query).fetch_one(&self.pool).await?;
        Ok(u64::try_from(count)?)
    }

    async fn producer(&self, connections: u32) -> Result<Self::Producer> {
        connected(&self.url, connections).await
    }

    async fn enqueue(producer: &Self::Producer, payload: Payload) -> Result<()> {
        Self::enqueue_many(producer, vec![payload]).await
    }

    async fn enqueue_many(producer: &Self::Producer, payloads: Vec<Payload>) -> Result<()> {
        let mut tasks = Vec::with_capacity(payloads.len());
        for payload in payloads {
            tasks.push(TaskBuilder::new(serde_json::to_vec(&payload)?).build());
        }
        let mut connection = producer.acquire().await?;
        queries::push_tasks(&mut *connection, QUEUE, tasks).await?;
        Ok(())
    }

    async fn start(&self, workload: Workload, handled: Arc<Handled>) -> Result<Self::Worker> {
        let workers: u32 = match workload {
            Workload::Drain => 4,
            Workload::Latency | Workload::Steady => 1,
        };
        let pool = connected(&self.url, 4 + workers).await?;
        let config = Config::default().queue(QUEUE).batch_size(BATCH);
        let mut contexts = Vec::new();
        let mut running = JoinSet::new();
        handled.begin();
        for number in 0..workers {
            let context = WorkerContext::new(&format!("bench-{number}"));
            let storage = PostgresStorage::<Payload>::new(&pool).with_config(config.clone());
            let handled = Arc::clone(&handled);
            // Two ways to wait are two types of worker, hence the same lines twice.
            if workload == Workload::Latency {
                let worker = WorkerBuilder::new(&context)
                    .backend(
                        storage
                            .with_pubsub()
                            .poll_with_interval(POLL_BEHIND_NOTIFICATIONS),
                    )
                    .data(handled)
                    .concurrency(BATCH)
                    .build(handle);
                running.spawn(async move { Ok(worker.run().await?) });
            } else {
                let worker = WorkerBuilder::new(&context)
                    .backend(storage.poll_with_interval(POLL))
                    .data(handled)
                    .concurrency(BATCH)
                    .build(handle);
                running.spawn(async move { Ok(worker.run().await?) });
            }
            contexts.push(context);
        }
        Ok((contexts, running))
    }

    async fn stop((contexts, mut running): Self::Worker) -> Result<()> {
        for context in contexts {
            context.stop()?;
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(())
    }
}

/// A pool whose connections are open already: opening them is no part of what is measured.
async fn connected(url: &str, connections: u32) -> Result<PgPool> {
    let options = PgPoolOptions::new()
        .min_connections(connections)
        .max_connections(connections)
        .test_before_acquire(false);
    Ok(options.connect(url).await?)
}
