//! Senders of webhooks: each signs as its service does.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use postroom::{InboxMessage, InboxMessageId};
use sha2::{Digest, Sha256};
use testkit::Fixture;

use crate::daemon::{Answer, Daemon, Start};

pub(crate) const STRIPE: &str = "whsec_the-secret-of-stripe";
pub(crate) const STRIPE_OLDER: &str = "whsec_the-older-secret-of-stripe";
pub(crate) const GITHUB: &str = "the secret of github";
pub(crate) const STANDARD_WEBHOOKS: &str = "whsec_dGhlIHNlY3JldCBvZiBzdGFuZGFyZCB3ZWJob29rcw==";
pub(crate) const PLAIN: &str = "the secret of acme";

/// A source of every scheme, and a dispatcher that leaves the inbox alone.
const CONFIG: &str = r#"
[dispatch]
enabled = false

[[webhook]]
source = "stripe"
scheme = "stripe"
secrets = [{ env = "STRIPE" }, { env = "STRIPE_OLDER" }]
topic = "payment"

[[webhook]]
source = "github"
scheme = "github"
secrets = [{ env = "GITHUB" }]

[[webhook]]
source = "standard"
scheme = "standard"
secrets = [{ env = "STANDARD_WEBHOOKS" }]

[[webhook]]
source = "acme"
scheme = "hmac"
header = "X-Acme-Signature"
secrets = [{ env = "PLAIN" }]
"#;

/// A daemon on a fixture's store that takes webhooks of every scheme.
pub(crate) fn daemon(fixture: &Fixture) -> Start {
    daemon_with(fixture, "")
}

/// The same with more of a configuration.
pub(crate) fn daemon_with(fixture: &Fixture, config: &str) -> Start {
    with_secrets(Daemon::on(fixture, &format!("{config}\n{CONFIG}")))
}

/// The configuration of one source that signs in the way it is named after.
pub(crate) fn only(source: &str, settings: &str) -> String {
    format!(
        "[dispatch]\nenabled = false\n\n[[webhook]]\nsource = \"{source}\"\nscheme = \"{source}\"\n{settings}"
    )
}

pub(crate) fn with_secrets(start: Start) -> Start {
    start
        .env("STRIPE", STRIPE)
        .env("STRIPE_OLDER", STRIPE_OLDER)
        .env("GITHUB", GITHUB)
        .env("STANDARD_WEBHOOKS", STANDARD_WEBHOOKS)
        .env("PLAIN", PLAIN)
}

/// A signed request.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Hook {
    pub(crate) fn stripe(secret: &str, time: i64, body: &str) -> Self {
        let text = format!("{time}.{body}");
        let tag = hexadecimal(&mac(secret.as_bytes(), text.as_bytes()));
        Self::new("stripe", body.as_bytes())
            .header("content-type", "application/json")
            .header("stripe-signature", &format!("t={time},v1={tag}"))
    }

    pub(crate) fn github(secret: &str, body: &[u8]) -> Self {
        let tag = hexadecimal(&mac(secret.as_bytes(), body));
        Self::new("github", body)
            .header("content-type", "application/json")
            .header("x-github-event", "push")
            .header("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
            .header("x-hub-signature-256", &format!("sha256={tag}"))
    }

    pub(crate) fn standard(secret: &str, id: &str, time: i64, body: &str) -> Self {
        let key = secret.trim_start_matches("whsec_");
        let key = STANDARD.decode(key).expect("base64");
        let tag = STANDARD.encode(mac(&key, format!("{id}.{time}.{body}").as_bytes()));
        Self::new("standard", body.as_bytes())
            .header("content-type", "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", &time.to_string())
            .header("webhook-signature", &format!("v1,{tag}"))
    }

    pub(crate) fn plain(secret: &str, body: &[u8]) -> Self {
        let tag = STANDARD.encode(mac(secret.as_bytes(), body));
        Self::new("acme", body).header("x-acme-signature", &tag)
    }

    fn new(source: &str, body: &[u8]) -> Self {
        Self {
            path: format!("/hooks/{source}"),
            headers: Vec::new(),
            body: body.to_vec(),
        }
    }

    /// With this header, in place of one that may be there.
    #[must_use]
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(there, _)| there != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) async fn send(&self, daemon: &Daemon) -> Answer {
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        daemon.post(&self.path, &headers, self.body.clone()).await
    }
}

/// The time that a sender signs.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.expect("a clock").as_secs()).expect("a time")
}

/// The message of a source with this id.
pub(crate) async fn kept(fixture: &Fixture, source: &str, id: &str) -> Option<InboxMessage> {
    let id = InboxMessageId::new(source, id);
    fixture.room.inbox().get(&id).await.expect("the store")
}

/// How a body is known where nothing else is signed.
pub(crate) fn body_key(body: &[u8]) -> String {
    hexadecimal(&Sha256::digest(body))
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key");
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
