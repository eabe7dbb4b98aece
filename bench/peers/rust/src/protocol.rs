//! What every peer of the benchmark says and does, whatever queue is behind it.
//!
//! A peer reads one request per line from standard input and writes one answer per line to
//! standard output, both JSON; standard error is for its own words. The workloads are written
//! here once, so that two peers differ only in the calls that they make to their queue.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A queue that is measured, deployed in an empty database.
pub trait Peer: Send + Sync + Sized + 'static {
    /// What enqueues: connections of its own.
    type Producer: Clone + Send + Sync + 'static;
    /// What handles messages, from the moment it is told to start until it is stopped.
    type Worker: Send;

    /// Deploys the schema.
    fn deploy(url: String) -> impl Future<Output = Result<Self>> + Send;

    /// Name and version, as shown in the results.
    fn name(&self) -> String;

    /// Removes all jobs.
    fn clean(&self) -> impl Future<Output = Result<()>> + Send;

    /// How many jobs the database holds that are not completed.
    fn unfinished(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Opens `connections` connections to enqueue by.
    fn producer(&self, connections: u32) -> impl Future<Output = Result<Self::Producer>> + Send;

    /// Enqueues one message and commits.
    fn enqueue(
        producer: &Self::Producer,
        payload: Payload,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Enqueues many messages in one call.
    fn enqueue_many(
        producer: &Self::Producer,
        payloads: Vec<Payload>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Does what comes before a worker is told to start (its connections), calls
    /// [`Handled::begin`], starts it and returns.
    fn start(
        &self,
        workload: Workload,
        handled: Arc<Handled>,
    ) -> impl Future<Output = Result<Self::Worker>> + Send;

    /// Stops a worker gracefully: when this returns, what it handled is completed in the
    /// database.
    fn stop(worker: Self::Worker) -> impl Future<Output = Result<()>> + Send;
}

/// What a worker is started for: each may ask for settings of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// As many waiting messages per second as it can.
    Drain,
    /// One message on an idle queue, as soon as it can.
    Latency,
    /// Messages that come one by one without a pause.
    Steady,
}

/// The payload of a message: 200 bytes of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Payload {
    /// When it was enqueued, in microseconds since 1970.
    pub at: u64,
    text: String,
}

impl Payload {
    const BYTES: usize = 200;

    /// A payload that says it is enqueued now.
    pub fn now() -> Self {
        let at = microseconds();
        let around = format!(r#"{{"at":{at},"text":""}}"#).len();
        Payload {
            at,
            text: "x".repeat(Self::BYTES - around),
        }
    }
}

/// Counts what a worker handles.
pub struct Handled {
    begun: Mutex<Instant>,
    count: AtomicU64,
    awaited: AtomicU64,
    reached: Notify,
    delays: Option<Mutex<Vec<f64>>>,
}

impl Handled {
    fn counted() -> Arc<Self> {
        Self::new(None)
    }

    fn timed() -> Arc<Self> {
        Self::new(Some(Mutex::new(Vec::new())))
    }

    fn new(delays: Option<Mutex<Vec<f64>>>) -> Arc<Self> {
        Arc::new(Handled {
            begun: Mutex::new(Instant::now()),
            count: AtomicU64::new(0),
            awaited: AtomicU64::new(u64::MAX),
            reached: Notify::new(),
            delays,
        })
    }

    /// The worker is told to start: the clock of a drain begins here.
    pub fn begin(&self) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// The handler of a message ran; `at` is its time of enqueueing.
    pub fn message(&self, at: u64) {
        if let Some(delays) = &self.delays {
            let delay = microseconds().saturating_sub(at) as f64 / 1e6;
            let mut delays = delays.lock().unwrap_or_else(PoisonError::into_inner);
            delays.push(delay);
        }
        let count = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        if count >= self.awaited.load(Ordering::SeqCst) {
            self.reached.notify_waiters();
        }
    }

    async fn reach(&self, messages: u64) -> Result<()> {
        self.awaited.store(messages, Ordering::SeqCst);
        loop {
            let reached = self.reached.notified();
            tokio::pin!(reached);
            // Registered before the count is read, so that no wake-up is missed.
            reached.as_mut().enable();
            let before = self.count.load(Ordering::SeqCst);
            if before >= messages {
                return Ok(());
            }
            let silent = tokio::time::timeout(PATIENCE, reached).await.is_err();
            if silent && self.count.load(Ordering::SeqCst) == before {
                bail!("no message was handled for a minute: {before} of {messages} until then");
            }
        }
    }

    fn since_begin(&self) -> Duration {
        self.begun
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .elapsed()
    }

    fn delays(&self) -> Vec<f64> {
        let delays = self.delays.as_ref().map(|delays| {
            std::mem::take(&mut *delays.lock().unwrap_or_else(PoisonError::into_inner))
        });
        delays.unwrap_or_default()
    }
}

/// How long a worker may be silent before the workload is given up.
const PATIENCE: Duration = Duration::from_secs(60);
const BATCH: u64 = 1_000;
const UNCOUNTED: u64 = 5;
const PAUSE: Duration = Duration::from_millis(40);
const MOST_DELAYS: usize = 20_000;

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Request {
    Clean,
    Enqueue { tasks: u32, each: u64 },
    Fill { messages: u64 },
    Drain { messages: u64 },
    Latency { samples: u64 },
    Steady { seconds: f64, producers: u32 },
}

#[derive(Serialize)]
struct Answer {
    messages: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    delays: Option<Vec<f64>>,
}

impl Answer {
    fn new(messages: u64, elapsed: Duration) -> Self {
        Answer {
            messages,
            seconds: elapsed.as_secs_f64(),
            delays: None,
        }
    }
}

/// Deploys the peer in the database named by the only argument, then serves requests until the
/// end of standard input.
pub async fn serve<P: Peer>() -> Result<()> {
    let url = std::env::args()
        .nth(1)
        .context("expected the URL of an empty PostgreSQL database as the only argument")?;
    let peer = P::deploy(url).await?;
    say(&serde_json::json!({ "ready": peer.name() })).await?;

    let mut requests = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = requests.next_line().await? {
        match answer(&peer, &line).await {
            Ok(answer) => say(&answer).await?,
            Err(error) => say(&serde_json::json!({ "error": format!("{error:#}") })).await?,
        }
    }
    Ok(())
}

async fn say(line: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut output = tokio::io::stdout();
    output.write_all(&text).await?;
    Ok(output.flush().await?)
}

async fn answer<P: Peer>(peer: &P, line: &str) -> Result<Answer> {
    match serde_json::from_str(line)? {
        Request::Clean => {
            peer.clean().await?;
            Ok(Answer::new(0, Duration::ZERO))
        }
        Request::Enqueue { tasks, each } => enqueue(peer, tasks, each).await,
        Request::Fill { messages } => fill(peer, messages).await,
        Request::Drain { messages } => drain(peer, messages).await,
        Request::Latency { samples } => latency(peer, samples).await,
        Request::Steady { seconds, producers } => {
            steady(peer, Duration::try_from_secs_f64(seconds)?, producers).await
        }
    }
}

async fn enqueue<P: Peer>(peer: &P, tasks: u32, each: u64) -> Result<Answer> {
    let producer = peer.producer(tasks).await?;
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let producer = producer.clone();
        running.spawn(async move {
            for _ in 0..each {
                P::enqueue(&producer, Payload::now()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(Answer::new(u64::from(tasks) * each, begun.elapsed()))
}

async fn fill<P: Peer>(peer: &P, messages: u64) -> Result<Answer> {
    let producer = peer.producer(1).await?;
    let begun = Instant::now();
    let mut left = messages;
    while left > 0 {
        let batch = left.min(BATCH);
        let payloads = (0..batch).map(|_| Payload::now()).collect();
        P::enqueue_many(&producer, payloads).await?;
        left -= batch;
    }
    Ok(Answer::new(messages, begun.elapsed()))
}

async fn drain<P: Peer>(peer: &P, messages: u64) -> Result<Answer> {
    let handled = Handled::counted();
    let worker = peer.start(Workload::Drain, Arc::clone(&handled)).await?;
    handled.reach(messages).await?;
    P::stop(worker).await?;
    let elapsed = handled.since_begin();

    let unfinished = peer.unfinished().await?;
    if unfinished > 0 {
        bail!("{messages} messages were handled, but {unfinished} are not completed");
    }
    Ok(Answer::new(messages, elapsed))
}

async fn latency<P: Peer>(peer: &P, samples: u64) -> Result<Answer> {
    let producer = peer.producer(1).await?;
    let handled = Handled::timed();
    let worker = peer.start(Workload::Latency, Arc::clone(&handled)).await?;
    let mut begun = Instant::now();
    for sample in 0..UNCOUNTED + samples {
        if sample == UNCOUNTED {
            begun = Instant::now();
        }
        tokio::time::sleep(PAUSE).await;
        P::enqueue(&producer, Payload::now()).await?;
        handled.reach(sample + 1).await?;
    }
    let elapsed = begun.elapsed();
    P::stop(worker).await?;

    let uncounted = usize::try_from(UNCOUNTED)?;
    let delays = handled.delays().split_off(uncounted);
    Ok(Answer {
        delays: Some(delays),
        ..Answer::new(samples, elapsed)
    })
}

async fn steady<P: Peer>(peer: &P, period: Duration, producers: u32) -> Result<Answer> {
    let producer = peer.producer(producers).await?;
    let handled = Handled::timed();
    let worker = peer.start(Workload::Steady, Arc::clone(&handled)).await?;
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..producers {
        let producer = producer.clone();
        running.spawn(async move {
            let mut enqueued = 0;
            while begun.elapsed() < period {
                P::enqueue(&producer, Payload::now()).await?;
                enqueued += 1;
            }
            anyhow::Ok(enqueued)
        });
    }
    let mut messages: u64 = 0;
    while let Some(ended) = running.join_next().await {
        messages += ended??;
    }
    handled.reach(messages).await?;
    let elapsed = begun.elapsed();
    P::stop(worker).await?;

    Ok(Answer {
        delays: Some(evenly(handled.delays(), MOST_DELAYS)),
        ..Answer::new(messages, elapsed)
    })
}

/// At most `most` of the delays, evenly taken.
fn evenly(delays: Vec<f64>, most: usize) -> Vec<f64> {
    if delays.len() <= most {
        return delays;
    }
    (0..most)
        .map(|index| delays[index * delays.len() / most])
        .collect()
}

fn microseconds() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}
