//! One who is measured: where it works, and what it costs there.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use tokio_postgres::{Client, NoTls};

use crate::process::{Process, Start};
use crate::protocol::{Answer, Queue, Request};

/// Producers of a steady state.
const PRODUCERS: usize = 2;

/// What a contender does in a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    Enqueue {
        tasks: usize,
        messages: usize,
        queue: Queue,
        dispatching: bool,
    },
    Fill {
        messages: usize,
    },
    Drain {
        messages: usize,
        queue: Queue,
        by_hand: bool,
        joins: bool,
        /// How many processes do it together.
        processes: usize,
    },
    Latency {
        samples: usize,
    },
    Steady {
        seconds: u64,
        /// While a session holds a snapshot for the whole run.
        snapshot: bool,
    },
}

impl Work {
    pub(crate) fn enqueue(tasks: usize, messages: usize) -> Self {
        Self::Enqueue {
            tasks,
            messages,
            queue: Queue::Outbox,
            dispatching: false,
        }
    }

    pub(crate) fn drain(messages: usize) -> Self {
        Self::Drain {
            messages,
            queue: Queue::Outbox,
            by_hand: false,
            joins: false,
            processes: 1,
        }
    }
}

/// What a run came to.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    /// Messages per second.
    pub(crate) rate: f64,
    /// From enqueue to handler, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99: Option<f64>,
    /// Bytes of write-ahead log per message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wal: Option<f64>,
    /// Versions of rows per message that became dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead: Option<f64>,
    /// Peak resident memory in megabytes of the process that worked (the largest, where there are several).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<f64>,
}

/// A PostgreSQL that can say what a run has cost it.
pub(crate) struct Watch {
    client: Client,
    url: String,
}

impl Watch {
    /// Watches the database of this URL.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        Ok(Self {
            client: connect(url).await?,
            url: url.to_owned(),
        })
    }

    async fn checkpoint(&self) -> Result<()> {
        Ok(self.client.batch_execute("CHECKPOINT").await?)
    }

    async fn wal(&self) -> Result<f64> {
        let sql = "SELECT (pg_current_wal_lsn() - '0/0')::float8";
        Ok(self.client.query_one(sql, &[]).await?.get(0))
    }

    /// Versions of rows that ever became dead here. Every session but ours is over: a session counts its
    /// work in when it ends.
    async fn dead(&self) -> Result<f64> {
        let others = "SELECT count(*) FROM pg_stat_activity
                      WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
        while self.client.query_one(others, &[]).await?.get::<_, i64>(0) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let sql = "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 FROM pg_stat_user_tables";
        Ok(self.client.query_one(sql, &[]).await?.get(0))
    }

    /// A session that holds a snapshot until it is dropped.
    async fn hold_snapshot(&self) -> Result<Client> {
        let holder = connect(&self.url).await?;
        holder
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
            .await?;
        Ok(holder)
    }
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// One who is measured, on a store that is its own.
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) peer: bool,
    /// Or why it is not here.
    start: Result<Start>,
    watch: Option<Watch>,
    processes: Option<Processes>,
}

/// One enqueues, the other works, so that the memory of each is its own.
struct Processes {
    producer: Process,
    worker: Process,
}

impl Contender {
    pub(crate) fn new(name: &str, start: Start, watch: Option<Watch>) -> Self {
        Self {
            name: name.to_owned(),
            peer: false,
            start: Ok(start),
            watch,
            processes: None,
        }
    }

    /// One that is not ours, and perhaps could not be installed.
    pub(crate) fn peer(name: &str, start: Result<Start>, watch: Option<Watch>) -> Self {
        Self {
            name: name.to_owned(),
            peer: true,
            start,
            watch,
            processes: None,
        }
    }

    fn start(&self) -> Result<&Start> {
        self.start.as_ref().map_err(|why| anyhow!("{why:#}"))
    }

    /// Starts it, unless it runs, and says what it calls itself, with its version.
    pub(crate) async fn ready(&mut self) -> Result<String> {
        Ok(self.processes().await?.worker.name.clone())
    }

    async fn processes(&mut self) -> Result<&mut Processes> {
        if self.processes.is_none() {
            self.processes = Some(Processes {
                producer: Process::start(self.start()?).await?,
                worker: Process::start(self.start()?).await?,
            });
        }
        self.processes.as_mut().context("they were just started")
    }

    /// Ends its processes, and with them its sessions. It can be measured again.
    pub(crate) async fn rest(&mut self) -> Result<()> {
        if let Some(processes) = self.processes.take() {
            processes.producer.end().await?;
            processes.worker.end().await?;
        }
        Ok(())
    }

    pub(crate) async fn measure(&mut self, work: Work) -> Result<Sample> {
        self.prepare(work).await?;
        let before = self.wal().await?;
        let mut done = match work {
            Work::Steady { seconds, snapshot } => self.steady(seconds, snapshot).await?,
            Work::Drain {
                messages,
                processes,
                ..
            } if processes > 1 => self.drain_together(messages, processes).await?,
            _ => self.alone(work).await?,
        };
        let messages = done.answer.messages as f64;
        done.answer.delays.sort_by(f64::total_cmp);
        let after = self.wal().await?;
        Ok(Sample {
            rate: messages / done.answer.seconds,
            p50: percentile(&done.answer.delays, 50),
            p99: percentile(&done.answer.delays, 99),
            wal: before
                .zip(after)
                .map(|(before, after)| (after - before) / messages),
            dead: done.dead.map(|dead| dead / messages),
            memory: done.memory,
        })
    }

    /// An empty store, or one with what is to be drained.
    async fn prepare(&mut self, work: Work) -> Result<()> {
        let producer = &mut self.processes().await?.producer;
        producer.ask(Request::Clean).await?;
        if let Some(watch) = &self.watch {
            watch.checkpoint().await?;
        }
        let producer = &mut self.processes().await?.producer;
        match work {
            Work::Drain {
                messages,
                queue: Queue::Outbox,
                joins,
                ..
            } => drop(producer.ask(Request::Fill { messages, joins }).await?),
            Work::Drain {
                messages, queue, ..
            } => drop(producer.ask(enqueue(16, messages, queue, false)).await?),
            _ => {}
        }
        Ok(())
    }

    async fn wal(&self) -> Result<Option<f64>> {
        match &self.watch {
            Some(watch) => Ok(Some(watch.wal().await?)),
            None => Ok(None),
        }
    }

    /// What one process does.
    async fn alone(&mut self, work: Work) -> Result<Done> {
        let Processes { producer, worker } = self.processes().await?;
        worker.forget_peak();
        let answer = match work {
            Work::Enqueue {
                tasks,
                messages,
                queue,
                dispatching,
            } => {
                producer
                    .ask(enqueue(tasks, messages, queue, dispatching))
                    .await?
            }
            Work::Fill { messages } => {
                let joins = false;
                producer.ask(Request::Fill { messages, joins }).await?
            }
            Work::Drain {
                messages,
                queue,
                by_hand,
                ..
            } => {
                let request = Request::Drain {
                    messages,
                    queue,
                    by_hand,
                };
                let answer = worker.ask(request).await?;
                return Ok(Done {
                    memory: worker.peak_memory(),
                    ..Done::new(answer)
                });
            }
            Work::Latency { samples } => worker.ask(Request::Latency { samples }).await?,
            Work::Steady { seconds, .. } => {
                let producers = PRODUCERS;
                worker.ask(Request::Steady { seconds, producers }).await?
            }
        };
        Ok(Done::new(answer))
    }

    /// Producers and a dispatcher for a while. A session counts what it did when it is over, so they all end
    /// before and after.
    async fn steady(&mut self, seconds: u64, snapshot: bool) -> Result<Done> {
        self.rest().await?;
        let before = self.dead().await?;
        let held = match &self.watch {
            Some(watch) if snapshot => Some(watch.hold_snapshot().await?),
            _ => None,
        };
        let work = Work::Steady { seconds, snapshot };
        let mut done = self.alone(work).await?;
        drop(held);
        done.memory = self.processes().await?.worker.peak_memory();
        self.rest().await?;
        done.dead = before
            .zip(self.dead().await?)
            .map(|(before, after)| after - before);
        Ok(done)
    }

    async fn dead(&self) -> Result<Option<f64>> {
        match &self.watch {
            Some(watch) => Ok(Some(watch.dead().await?)),
            None => Ok(None),
        }
    }

    /// Several processes drain one store together.
    async fn drain_together(&mut self, messages: usize, processes: usize) -> Result<Done> {
        let mut workers = Vec::new();
        for _ in 0..processes {
            workers.push(Process::start(self.start()?).await?);
        }
        let started = Instant::now();
        for worker in &mut workers {
            worker.ask(Request::Dispatch).await?;
        }
        loop {
            let mut handled = 0;
            for worker in &mut workers {
                handled += worker.ask(Request::Handled).await?.messages;
            }
            if handled >= messages {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut done = Done::new(Answer {
            messages,
            seconds: started.elapsed().as_secs_f64(),
            ..Answer::default()
        });
        for mut worker in workers {
            worker.ask(Request::Stop).await?;
            let memory = worker.peak_memory().unwrap_or_default();
            done.memory = Some(done.memory.map_or(memory, |most| most.max(memory)));
            worker.end().await?;
        }
        Ok(done)
    }
}

/// What was done, and what it took.
struct Done {
    answer: Answer,
    dead: Option<f64>,
    memory: Option<f64>,
}

impl Done {
    fn new(answer: Answer) -> Self {
        Self {
            answer,
            dead: None,
            memory: None,
        }
    }
}

fn enqueue(tasks: usize, messages: usize, queue: Queue, dispatching: bool) -> Request {
    Request::Enqueue {
        tasks,
        each: messages / tasks,
        queue,
        dispatching,
    }
}

/// Of values in order.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted
        .get((sorted.len() * percent / 100).min(last))
        .copied()
}
