//! The crate graphile_worker as a peer.
//!
//! Tuned, by medians of alternating drains of 50,000 on two shared cores (messages per second;
//! in force: concurrency 16, 4 local queues of 2,000, completions batched for 5 ms, 8 connections):
//!
//! | setting | drained per second |
//! |---|---|
//! | **in force** | **50,000** |
//! | as its documentation shows: concurrency 16, 1 local queue of 100, 5 ms | 13,900 |
//! | as its own benchmark: concurrency 500, 1 local queue of 5,000, 5 ms, 100 connections | 31,300 |
//! | 1; 2; 3 local queues of 2,000 | 25,700; 38,700; 38,500 |
//! | 4 local queues of 4,000 | 35,000 |
//! | 8 local queues of 1,000, 12 connections (4 of 1,000 in the same run: 46,200) | 36,400 |
//! | concurrency 4; 8 | 34,800; 41,400 |
//! | completions batched for 1 ms; 20 ms | 35,600; 32,000 |
//! | 6 connections; 20 connections (in another run, against 46,200) | 37,500; 36,200 |
//! | the driver of tokio-postgres, which prepares no statements | 31,200 |
//!
//! The figure in force is the best of thirteen in that run, so partly luck. In other runs it was
//! 48,400 (highest of four), 35,200 (alone) and, under heavy load, 20,000 (4 of 1,000: 23,300).
//!
//! `add_jobs` filled faster than `add_raw_jobs` (15,000 to 8,900). In the steady state one local
//! queue beat four (488 to 333 messages per second: four ask four times for each message that
//! comes). The pool does not ping a connection before each use, which sqlx does by default.
//!
//! The end of a drain is the end of a graceful stop, which writes the completions that are still
//! in a batch; one that was timed took 2 ms.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use protocol::{Handled, Payload, Peer, Workload};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::task::JoinHandle;

/// As pinned in Cargo.toml.
const VERSION: &str = "0.14.1";
const SCHEMA: &str = "graphile_worker";
const WORKER_CONNECTIONS: u32 = 8;

#[tokio::main]
async fn main() -> Result<()> {
    protocol::serve::<GraphileWorker>().await
}

struct GraphileWorker {
    url: String,
    pool: PgPool,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct Message(Payload);

impl TaskHandler for Message {
    const IDENTIFIER: &'static str = "bench";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(counter) = context.get_ext::<Counter>() {
            counter.0.message(self.0.at);
        }
        Ok::<(), String>(())
    }
}

#[derive(Clone)]
struct Counter(Arc<Handled>);

impl std::fmt::Debug for Counter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Counter")
    }
}

impl Peer for GraphileWorker {
    type Producer = Arc<WorkerUtils>;
    type Worker = (Arc<Worker>, JoinHandle<Result<()>>);

    async fn deploy(url: String) -> Result<Self> {
        let pool = connected(&url, 1).await?;
        WorkerUtils::new(pool.clone(), SCHEMA).migrate().await?;
        Ok(GraphileWorker { url, pool })
    }

    fn name(&self) -> String {
        format!("graphile_worker {VERSION}")
    }

    async fn clean(&self) -> Result<()> {
        sqlx::query("truncate graphile_worker._private_jobs cascade")
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn unfinished(&self) -> Result<u64> {
        // A completed job is deleted.
        let count: i64 = sqlx::query_scalar("select count(*) from graphile_worker._private_jobs")
            .fetch_one(&self.pool)
            .await?;
        Ok(u64::try_from(count)?)
    }

    async fn producer(&self, connections: u32) -> Result<Self::Producer> {
        let pool = connected(&self.url, connections).await?;
        Ok(Arc::new(WorkerUtils::new(pool, SCHEMA)))
    }

    async fn enqueue(producer: &Self::Producer, payload: Payload) -> Result<()> {
        let spec = JobSpec::default();
        producer.add_job(Message(payload), spec).await?;
        Ok(())
    }

    async fn enqueue_many(producer: &Self::Producer, payloads: Vec<Payload>) -> Result<()> {
        let spec = JobSpec::default();
        let jobs: Vec<_> = payloads
            .into_iter()
            .map(|payload| (Message(payload), &spec))
            .collect();
        producer.add_jobs::<Message>(&jobs).await?;
        Ok(())
    }

    async fn start(&self, workload: Workload, handled: Arc<Handled>) -> Result<Self::Worker> {
        let options = WorkerOptions::default()
            .pg_pool(connected(&self.url, WORKER_CONNECTIONS).await?)
            .schema(SCHEMA)
            .listen_os_shutdown_signals(false)
            .add_extension(Counter(Arc::clone(&handled)))
            .define_job::<Message>();
        let options = match workload {
            Workload::Drain => batching(options, 4),
            Workload::Steady => batching(options, 1),
            Workload::Latency => options.concurrency(4),
        };
        let worker = Arc::new(options.init().await?);
        handled.begin();
        let running = tokio::spawn({
            let worker = Arc::clone(&worker);
            async move { Ok(worker.run().await?) }
        });
        Ok((worker, running))
    }

    async fn stop((worker, running): Self::Worker) -> Result<()> {
        worker.request_shutdown();
        running.await?
    }
}

fn batching(options: WorkerOptions, local_queues: usize) -> WorkerOptions {
    options
        .concurrency(16)
        .poll_interval(Duration::from_millis(100))
        .complete_job_batch_delay(Duration::from_millis(5))
        .local_queue(
            LocalQueueConfig::default()
                .with_size(2_000)
                .with_queue_count(local_queues),
        )
}

/// A pool whose connections are open already: opening them is no part of what is measured.
async fn connected(url: &str, connections: u32) -> Result<PgPool> {
    let options = PgPoolOptions::new()
        .min_connections(connections)
        .max_connections(connections)
        .test_before_acquire(false);
    Ok(options.connect(url).await?)
}
