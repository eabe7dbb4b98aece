//! From an enqueue to the handler while the queue is idle, against the floor: a NOTIFY in the enqueueing
//! transaction, a LISTEN, a claim.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use postroom::{Delivery, Postroom};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, NoTls};
use uuid::Uuid;

use super::library::message;
use super::{LEASE, TOPIC, payload};
use crate::protocol::Answer;

/// How long the queue is left alone before each message: longer than any pause of a busy one.
const IDLE: Duration = Duration::from_millis(40);

/// The times from before an enqueue to the handler, with another process's connections.
pub(crate) async fn dispatcher(
    producer: &Postroom,
    consumer: &Postroom,
    samples: usize,
) -> Result<Answer> {
    let (sender, mut handled) = mpsc::unbounded_channel();
    let sender = Arc::new(sender);
    let running = consumer
        .dispatcher()
        .on(TOPIC, move |_: Delivery| {
            let sender = Arc::clone(&sender);
            async move {
                let _ = sender.send(Instant::now());
            }
        })
        .start()?;
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples + WARM_UP {
        tokio::time::sleep(IDLE).await;
        let started = Instant::now();
        producer.outbox().enqueue(&message()).await?;
        let reached = handled.recv().await.context("a handled message")?;
        times.push(reached - started);
    }
    running.stop().await;
    Ok(answer(times))
}

/// The same by hand: nothing between the notification and the claim.
pub(crate) async fn floor(url: &str, enqueue: &str, claim: &str, samples: usize) -> Result<Answer> {
    let (producer, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let (consumer, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    let (sender, mut notified) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) =
            std::future::poll_fn(|context| connection.poll_message(context)).await
        {
            if let AsyncMessage::Notification(_) = message {
                let _ = sender.send(());
            }
        }
    });
    consumer.batch_execute("LISTEN bench_floor").await?;
    let enqueue = format!("{enqueue} RETURNING pg_notify('bench_floor', '')");
    let (enqueue, claim) = (
        producer.prepare(&enqueue).await?,
        consumer.prepare(claim).await?,
    );
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples + WARM_UP {
        tokio::time::sleep(IDLE).await;
        let (id, payload) = (Uuid::now_v7(), payload());
        let (none, due): (Option<&str>, Option<i64>) = (None, None);
        let started = Instant::now();
        producer
            .query(
                &enqueue,
                &[&id, &id, &TOPIC, &payload, &none, &"bench", &due],
            )
            .await?;
        notified.recv().await.context("a notification")?;
        let lease = i64::try_from(LEASE.as_micros())?;
        let rows = consumer
            .query(
                &claim,
                &[&Uuid::now_v7(), &lease, &50_i64, &None::<i64>, &1_i64],
            )
            .await?;
        anyhow::ensure!(rows.len() == 1, "one message is claimed");
        times.push(started.elapsed());
    }
    Ok(answer(times))
}

/// Samples that do not count: connections and plans are made.
const WARM_UP: usize = 5;

fn answer(mut times: Vec<Duration>) -> Answer {
    let counted = times.split_off(WARM_UP);
    Answer {
        messages: counted.len(),
        seconds: counted.iter().sum::<Duration>().as_secs_f64(),
        delays: counted.iter().map(Duration::as_secs_f64).collect(),
        error: None,
    }
}
