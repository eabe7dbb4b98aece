//! Messages as HTTP requests, signed in the Standard Webhooks way.

use std::error::Error as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use postroom::{Delivery, HandlerError, Outcome, TraceContext};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};

use super::address::{PublicOnly, Refused, System, endpoint};
use super::signature::SigningKey;
use crate::config::HttpTarget;

/// No more of an answer is read: enough to use the connection again after most of them.
const MOST_READ: usize = 4 * 1024;

/// How long it may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// However long an endpoint asks us to wait, and however short.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3_600);
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// The connections of all endpoints. Those that may be private have a pool of their own: a connection to a
/// private address must not serve a target that may not have one.
#[derive(Default)]
pub(super) struct Clients {
    public: Option<Client>,
    any: Option<Client>,
}

impl Clients {
    fn client(&mut self, allow_private: bool) -> anyhow::Result<Client> {
        let slot = if allow_private {
            &mut self.any
        } else {
            &mut self.public
        };
        match slot {
            Some(client) => Ok(client.clone()),
            None => Ok(slot.insert(connect(allow_private)?).clone()),
        }
    }
}

fn connect(allow_private: bool) -> anyhow::Result<Client> {
    let mut client = Client::builder()
        .user_agent(concat!("postroom/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(Policy::none())
        .referer(false)
        // The dispatcher retries, by a policy that people can read.
        .retry(reqwest::retry::never())
        // A proxy would look names up again, and connect to whatever it finds.
        .no_proxy();
    if !allow_private {
        client = client.dns_resolver(PublicOnly::new(System));
    }
    client
        .build()
        .context("HTTP could not be set up; are the system's root certificates installed?")
}

/// An endpoint that takes messages.
pub(super) struct Endpoint {
    client: Client,
    url: Url,
    keys: Vec<SigningKey>,
    headers: HeaderMap,
    timeout: Duration,
}

impl Endpoint {
    pub(super) fn new(target: &HttpTarget, clients: &mut Clients) -> anyhow::Result<Self> {
        let url = endpoint(target.url.reveal(), target.allow_http, target.allow_private)
            .map_err(|says| anyhow!("its http.url {says}"))?;
        let keys = target
            .secrets
            .iter()
            .map(|secret| SigningKey::parse(secret.reveal()))
            .collect::<Result<_, _>>()
            .map_err(|says| anyhow!("in its http.secrets {says}"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &target.headers {
            let name: HeaderName = name.parse().context("a header has a wrong name")?;
            let mut value =
                HeaderValue::from_str(value.reveal()).context("a header has a wrong value")?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Self {
            client: clients.client(target.allow_private)?,
            url,
            keys,
            headers,
            timeout: target.timeout,
        })
    }

    /// Sends a message once. An answer of 2xx is a delivery, whatever it says.
    pub(super) async fn deliver(&self, delivery: &Delivery) -> Result<Outcome, HandlerError> {
        let request = self
            .client
            .post(self.url.clone())
            .timeout(self.timeout)
            .headers(self.headers_of(delivery, SystemTime::now())?)
            .body(delivery.payload().to_owned());
        let response = request.send().await.map_err(|error| self.unsent(error))?;
        let (status, wait) = (response.status(), retry_after(response.headers()));
        read_a_little(response).await;
        self.judge(status, wait)
    }

    fn headers_of(&self, delivery: &Delivery, now: SystemTime) -> Result<HeaderMap, HandlerError> {
        let body = delivery.payload();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type(body));
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
        let id = webhook_id(delivery);
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let timestamp = seconds.to_string();
        let mut ours = vec![
            ("webhook-id", id.clone()),
            ("webhook-timestamp", timestamp.clone()),
            ("postroom-topic", delivery.topic().to_owned()),
            ("postroom-attempt", delivery.attempt().to_string()),
        ];
        if !self.keys.is_empty() {
            let sign = |key: &SigningKey| key.sign(&id, &timestamp, body);
            let signatures: Vec<String> = self.keys.iter().map(sign).collect();
            ours.push(("webhook-signature", signatures.join(" ")));
        }
        if let Some(correlation_id) = delivery.correlation_id() {
            ours.push(("postroom-correlation-id", correlation_id.to_owned()));
        }
        if let Some(trace) = TraceContext::current() {
            ours.push(("traceparent", trace.to_string()));
        }
        for (name, value) in ours {
            // Bytes beyond ASCII pass; what would end the header does not.
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
                HandlerError::permanent(format!("{name} holds what no HTTP header can"))
            })?;
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(headers)
    }

    fn judge(&self, status: StatusCode, wait: Option<Duration>) -> Result<Outcome, HandlerError> {
        let place = self.place();
        let error = match status.as_u16() {
            200..=299 => return Ok(Outcome::Done),
            300..=399 => {
                return Err(HandlerError::business(format!(
                    "{place} answered {status}; redirects are not followed, so configure the right address"
                )));
            }
            408 | 425 | 429 | 500.. => {
                HandlerError::infrastructure(format!("{place} answered {status}"))
            }
            _ => HandlerError::business(format!("{place} answered {status}")),
        };
        Err(match wait {
            Some(wait) => error.retry_after(wait),
            None => error,
        })
    }

    /// What kept a request from being answered. Only the causes are told: the error itself has the whole
    /// address in it.
    fn unsent(&self, error: reqwest::Error) -> HandlerError {
        let place = self.place();
        if error.is_timeout() {
            let text = format!("{place} did not answer within {:?}", self.timeout);
            return HandlerError::infrastructure(text);
        }
        let mut causes = Vec::new();
        let mut cause = error.source();
        while let Some(current) = cause {
            if current.is::<Refused>() {
                return HandlerError::business(format!("{place} {current}"));
            }
            causes.push(current.to_string());
            cause = current.source();
        }
        HandlerError::infrastructure(format!(
            "{place} could not be reached: {}",
            causes.join(": ")
        ))
    }

    /// Where it is, without the path, which may be a secret.
    fn place(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

/// The message's id, the same at every attempt. A signature covers `id.time.body`, so an id with a dot in
/// it, or with what no header can hold, gives way to the id of the work item.
fn webhook_id(delivery: &Delivery) -> String {
    let id = delivery.message_id();
    if !id.is_empty()
        && id
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'.')
    {
        id
    } else {
        delivery.work_item_id().to_string()
    }
}

fn content_type(body: &str) -> HeaderValue {
    HeaderValue::from_static(match serde_json::from_str::<serde::de::IgnoredAny>(body) {
        Ok(_) => "application/json",
        Err(_) => "text/plain; charset=utf-8",
    })
}

/// When the endpoint wants to be asked again: in some seconds, or at a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if value.bytes().all(|byte| byte.is_ascii_digit()) && !value.is_empty() {
        // More digits than fit are a long time.
        value.parse().map_or(LONGEST_WAIT, Duration::from_secs)
    } else {
        let date = jiff::fmt::rfc2822::parse(value).ok()?;
        let date = SystemTime::from(date.timestamp());
        date.duration_since(SystemTime::now()).unwrap_or_default()
    };
    Some(wait.clamp(SHORTEST_WAIT, LONGEST_WAIT))
}

/// Takes the answer from the connection. Nobody keeps it, and whether it comes is no matter any more.
async fn read_a_little(mut response: Response) {
    let mut read = 0;
    while read < MOST_READ
        && let Ok(Some(chunk)) = response.chunk().await
    {
        read += chunk.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(value: &str) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, value.parse().expect("a header"));
        retry_after(&headers).map(|wait| wait.as_secs())
    }

    #[test]
    fn retry_after_is_seconds_within_bounds() {
        assert_eq!(wait("120"), Some(120));
        assert_eq!(wait("0"), Some(1));
        assert_eq!(wait("86401"), Some(86_400));
        assert_eq!(wait("99999999999999999999999"), Some(86_400));
        assert_eq!(wait("-5"), None);
        assert_eq!(wait("soon"), None);
        assert_eq!(wait(""), None);
    }

    #[test]
    fn retry_after_is_a_date_within_bounds() {
        let date = |from_now: i64| {
            let time = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(from_now);
            jiff::fmt::rfc2822::DateTimePrinter::new()
                .timestamp_to_rfc9110_string(&time)
                .expect("a date")
        };
        let soon = wait(&date(120)).expect("a wait");
        assert!((110..=120).contains(&soon), "{soon}");
        assert_eq!(wait(&date(-3_600)), Some(1));
        assert_eq!(wait(&date(10 * 86_400)), Some(86_400));
    }

    #[test]
    fn json_is_told_from_text() {
        assert_eq!(content_type(r#"{"id":7}"#), "application/json");
        assert_eq!(content_type("7"), "application/json");
        assert_eq!(content_type("hello"), "text/plain; charset=utf-8");
        assert_eq!(content_type(""), "text/plain; charset=utf-8");
    }
}
