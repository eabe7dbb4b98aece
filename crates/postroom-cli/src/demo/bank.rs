//! The demo's bank: it tells the shop of payments by webhooks, and like every bank it says things twice.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{StreamExt, TryStreamExt, stream};
use hmac::{Hmac, KeyInit, Mac};
use indicatif::ProgressBar;
use reqwest::StatusCode;
use sha2::Sha256;

use crate::config::{Scheme, Secret, Webhook};

/// Requests at once.
const AT_ONCE: usize = 8;

/// Payments come in, signed in the Standard Webhooks way.
pub(super) struct Bank {
    key: Vec<u8>,
    url: String,
    client: reqwest::Client,
}

/// How the shop answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) accepted: u64,
    pub(super) duplicates: u64,
}

impl Bank {
    /// A bank with a fresh key, and what the daemon has to know of it.
    pub(super) fn open() -> (Vec<u8>, Webhook) {
        let key = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()]
            .iter()
            .flat_map(|half| half.into_bytes())
            .collect::<Vec<u8>>();
        let webhook = Webhook {
            source: "bank".to_owned(),
            scheme: Scheme::Standard,
            secrets: vec![Secret::new(format!("whsec_{}", STANDARD.encode(&key)))],
            topic: Some("payment.received".to_owned()),
            store: None,
            header: None,
            concurrency: 64,
            rate: None,
        };
        (key, webhook)
    }

    pub(super) fn new(key: Vec<u8>, address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self {
            key,
            url: format!("http://{address}/hooks/bank"),
            client: reqwest::Client::builder().no_proxy().build()?,
        })
    }

    /// Tells of the payment of every order; of every second one twice, of every fifth three times.
    pub(super) async fn pay(&self, orders: &[i64], bar: &ProgressBar) -> anyhow::Result<Answers> {
        let times = |order: i64| 1 + u64::from(order % 2 == 0) + u64::from(order % 5 == 1);
        let requests = orders
            .iter()
            .flat_map(|order| (0..times(*order)).map(|_| *order));
        stream::iter(requests)
            .map(|order| async move {
                let answer = self.send(order, &body(order), &self.key).await?;
                bar.inc(1);
                Ok::<_, anyhow::Error>(answer)
            })
            .buffer_unordered(AT_ONCE)
            .try_fold(Answers::default(), |mut answers, status| async move {
                match status {
                    StatusCode::ACCEPTED => answers.accepted += 1,
                    StatusCode::OK => answers.duplicates += 1,
                    other => anyhow::bail!("the shop answered {other}"),
                }
                Ok(answers)
            })
            .await
    }

    /// Somebody who does not know the key sends a payment, and somebody else replays an id with another
    /// amount.
    pub(super) async fn forge(&self, order: i64) -> anyhow::Result<[StatusCode; 2]> {
        let unknown = self.send(order, &body(order), b"guessed").await?;
        let altered = body(order).replace("100", "999");
        Ok([unknown, self.send(order, &altered, &self.key).await?])
    }

    async fn send(&self, order: i64, body: &str, key: &[u8]) -> anyhow::Result<StatusCode> {
        let id = format!("payment-{order}");
        let now = jiff::Timestamp::now().as_second();
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)?;
        mac.update(format!("{id}.{now}.{body}").as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        let response = self
            .client
            .post(&self.url)
            .header("webhook-id", id)
            .header("webhook-timestamp", now.to_string())
            .header("webhook-signature", format!("v1,{signature}"))
            .header("content-type", "application/json")
            .body(body.to_owned())
            .send()
            .await
            .context("the shop cannot be reached")?;
        let status = response.status();
        ensure!(!status.is_server_error(), "the shop answered {status}");
        Ok(status)
    }
}

fn body(order: i64) -> String {
    format!(r#"{{"order":{order},"amount":100}}"#)
}
