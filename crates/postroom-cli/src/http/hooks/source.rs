//! The senders that are known, by name.

use std::collections::HashMap;

use anyhow::{Context, bail, ensure};
use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postroom::{Inbound, Inbox, TraceContext};

use super::keep::{Arrived, Kept, Turns};
use super::limits::Limits;
use super::signature::Keys;
use super::verify::{Refusal, Verifier, sha256};
use crate::config::{LONGEST_SOURCE, Webhook};

/// Says that a payload is base64, as it does for the envelopes of transports.
const ENCODING: &str = "postroom-content-encoding";

/// Kept with every message. Nothing here is undone: a body that came compressed stays so.
const KEPT: [header::HeaderName; 2] = [header::CONTENT_TYPE, header::CONTENT_ENCODING];

/// Every sender, and who is at which message.
pub(super) struct Sources {
    known: HashMap<String, Source>,
    turns: Turns,
    decoy: Keys,
}

impl Sources {
    pub(super) fn new(webhooks: &[Webhook]) -> anyhow::Result<Self> {
        let mut sources = Self::none();
        for webhook in webhooks {
            let name = &webhook.source;
            let source = Source::new(webhook)
                .with_context(|| format!("the webhook source `{name}` is not right"))?;
            if sources.known.insert(name.clone(), source).is_some() {
                bail!("there are two webhook sources `{name}`");
            }
        }
        Ok(sources)
    }

    pub(super) fn none() -> Self {
        Self {
            known: HashMap::new(),
            turns: Turns::default(),
            decoy: Keys::of_nobody(),
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<&Source> {
        self.known.get(name)
    }

    /// What a wrong signature would have cost, so that the time of an answer does not tell more than the
    /// answer.
    pub(super) fn work_for_nothing(&self, body: &[u8]) {
        std::hint::black_box(self.decoy.have_signed(&[body], &[[0; 32]]));
    }

    pub(super) async fn keep(
        &self,
        inbox: &Inbox,
        arrived: &Arrived,
    ) -> Result<Kept, postroom::Error> {
        self.turns.keep(inbox, arrived).await
    }
}

/// One sender.
pub(super) struct Source {
    name: String,
    topic: String,
    store: Option<String>,
    verifier: Verifier,
    limits: Limits,
}

impl Source {
    fn new(webhook: &Webhook) -> anyhow::Result<Self> {
        let name = &webhook.source;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        ensure!(
            (1..=LONGEST_SOURCE).contains(&name.len()) && name.bytes().all(plain),
            "`source` is part of an address: letters, digits, `-`, `_` and `.`, at most {LONGEST_SOURCE}"
        );
        Ok(Self {
            name: name.clone(),
            topic: webhook.topic.clone().unwrap_or_else(|| name.clone()),
            store: webhook.store.clone(),
            verifier: Verifier::new(webhook)?,
            limits: Limits::new(webhook)?,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn store(&self) -> Option<&str> {
        self.store.as_deref()
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: i64,
    ) -> Result<String, Refusal> {
        self.verifier.verify(headers, body, now)
    }

    /// A verified request as a message. The inbox holds text: bodies that are none become base64.
    pub(super) fn arrival(&self, key: String, headers: &HeaderMap, body: &[u8]) -> Arrived {
        let text = std::str::from_utf8(body)
            .ok()
            .filter(|text| !text.contains('\0'));
        let payload = text.map_or_else(|| STANDARD.encode(body), str::to_owned);
        let hash = sha256(body);
        let mut inbound = Inbound::new(&self.name, &key, &self.topic, payload).hash(hash);
        if text.is_none() {
            inbound = inbound.header(ENCODING, "base64");
        }
        let kept = KEPT.iter().map(header::HeaderName::as_str);
        for name in kept.chain(self.verifier.kept_headers().iter().copied()) {
            if let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) {
                inbound = inbound.header(name, value);
            }
        }
        let trace = headers
            .get("traceparent")
            .and_then(|value| TraceContext::parse(value.to_str().ok()?).ok());
        if let Some(trace) = trace {
            inbound = inbound.header("traceparent", trace.to_string());
        }
        Arrived::new(&self.name, key, hash, inbound)
    }
}
