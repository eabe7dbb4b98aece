//! What a test expects to find in the outbox, and what it is told when that is not there.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::future::{Future, IntoFuture};
use std::panic::Location;
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value as Json;

use crate::error::Error;
use crate::list::List;
use crate::message::{OutboxMessage, State};
use crate::room::Postroom;

/// How much a due time may differ from what was expected: the caller's clock made it, and the database's
/// says when it was enqueued.
const DUE_TOLERANCE: Duration = Duration::from_secs(5);

/// How many messages a failed expectation names.
const NAMED: usize = 5;

/// Messages that a test expects: narrow it down, then await it. It panics when it is not met, and
/// otherwise gives the messages back.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # use postroom::{Message, testing::TestRoom};
/// # let room = TestRoom::new().await?;
/// # room.outbox().enqueue(&Message::new("order.created", r#"{"id":7}"#).correlation("r-1")).await?;
/// let messages = room.expect_enqueued("order.created").correlation("r-1").times(1).await;
/// assert_eq!(messages[0].payload, r#"{"id":7}"#);
/// # Ok::<(), postroom::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "await it: nothing is checked before"]
pub struct Expectation<'a> {
    room: &'a Postroom,
    states: &'static [State],
    topic: String,
    criteria: Vec<Criterion>,
    times: Option<usize>,
    caller: &'static Location<'static>,
}

/// What a message must be like.
enum Criterion {
    Payload(String),
    /// `None` is a value that cannot be written as JSON, which no payload contains.
    PayloadJson(Option<Json>),
    Correlation(String),
    Header(String, String),
    DueIn(Duration),
}

impl<'a> Expectation<'a> {
    #[track_caller]
    pub(super) fn new(room: &'a Postroom, topic: String, states: &'static [State]) -> Self {
        Self {
            room,
            states,
            topic,
            criteria: Vec::new(),
            times: None,
            caller: Location::caller(),
        }
    }

    /// Whose payload is exactly this text.
    pub fn payload(self, payload: impl Into<String>) -> Self {
        self.must(Criterion::Payload(payload.into()))
    }

    /// Whose payload is JSON that contains this: an object may have more fields, at any depth; everything
    /// else must be equal.
    pub fn payload_json(self, part: &impl Serialize) -> Self {
        self.must(Criterion::PayloadJson(serde_json::to_value(part).ok()))
    }

    /// With this correlation id.
    pub fn correlation(self, id: impl ToString) -> Self {
        self.must(Criterion::Correlation(id.to_string()))
    }

    /// With this header.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.must(Criterion::Header(name.into(), value.into()))
    }

    /// Due so long after it was enqueued, give or take five seconds. A message without a due time is due
    /// at once.
    pub fn due_in(self, time: Duration) -> Self {
        self.must(Criterion::DueIn(time))
    }

    /// Exactly so many, instead of at least one.
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    fn must(mut self, criterion: Criterion) -> Self {
        self.criteria.push(criterion);
        self
    }

    async fn check(self) -> Vec<OutboxMessage> {
        let waiting = match everything(self.room, self.states).await {
            Ok(waiting) => waiting,
            Err(error) => panic!("the outbox could not be read: {error}, at {}", self.caller),
        };
        let of_topic = || waiting.iter().filter(|message| message.topic == self.topic);
        let found: Vec<OutboxMessage> = of_topic()
            .filter(|message| self.criteria.iter().all(|one| one.is_met_by(message)))
            .cloned()
            .collect();
        let met = self
            .times
            .map_or(!found.is_empty(), |times| found.len() == times);
        assert!(met, "{}", self.failure(&waiting, &found));
        found
    }

    /// Says what was expected and what there is. Ids, topics and numbers; never a payload.
    fn failure(&self, waiting: &[OutboxMessage], found: &[OutboxMessage]) -> String {
        let mut text = format!(
            "expected {} of `{}` {}",
            match self.times {
                None => "at least one message".to_owned(),
                Some(0) => "no message".to_owned(),
                Some(1) => "one message".to_owned(),
                Some(times) => format!("{times} messages"),
            },
            self.topic,
            standing(self.states),
        );
        for criterion in &self.criteria {
            let _ = write!(text, ", {criterion}");
        }
        let _ = write!(text, "; found {}", found.len());
        let ids: Vec<String> = found.iter().map(|message| message.id.to_string()).collect();
        if !ids.is_empty() {
            let more = if ids.len() > NAMED { ", …" } else { "" };
            let _ = write!(text, " ({}{more})", ids[..ids.len().min(NAMED)].join(", "));
        }
        let mut topics: BTreeMap<&str, Vec<&OutboxMessage>> = BTreeMap::new();
        for message in waiting {
            topics.entry(&message.topic).or_default().push(message);
        }
        if let Some(of_topic) = topics.get(self.topic.as_str()) {
            for criterion in &self.criteria {
                let count = of_topic.iter().filter(|one| criterion.is_met_by(one));
                let _ = write!(
                    text,
                    "\n  {} of the {} of this topic: {criterion}",
                    count.count(),
                    of_topic.len()
                );
            }
        }
        let topics: Vec<String> = topics
            .iter()
            .map(|(topic, messages)| format!("`{topic}` ({})", messages.len()))
            .collect();
        let topics = if topics.is_empty() {
            "none".to_owned()
        } else {
            topics.join(", ")
        };
        let _ = write!(
            text,
            "\n  topics {}: {topics}\n  at {}",
            standing(self.states),
            self.caller
        );
        text
    }
}

impl<'a> IntoFuture for Expectation<'a> {
    type Output = Vec<OutboxMessage>;
    type IntoFuture = Pin<Box<dyn Future<Output = Vec<OutboxMessage>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.check())
    }
}

impl Criterion {
    fn is_met_by(&self, message: &OutboxMessage) -> bool {
        match self {
            Self::Payload(payload) => message.payload == *payload,
            Self::PayloadJson(part) => {
                let whole = serde_json::from_str(&message.payload).ok();
                part.as_ref()
                    .zip(whole)
                    .is_some_and(|(part, whole)| contains(&whole, part))
            }
            Self::Correlation(id) => message.correlation_id.as_deref() == Some(id),
            Self::Header(name, value) => message.headers.get(name) == Some(value),
            Self::DueIn(time) => {
                let due = message.due_time.unwrap_or(message.created_at);
                let delay = due.duration_since(message.created_at).unwrap_or_default();
                delay.abs_diff(*time) <= DUE_TOLERANCE
            }
        }
    }
}

impl std::fmt::Display for Criterion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Payload(_) => f.write_str("with the given payload"),
            Self::PayloadJson(_) => f.write_str("whose payload contains the given JSON"),
            Self::Correlation(id) => write!(f, "with the correlation id `{id}`"),
            Self::Header(name, _) => write!(f, "with the given header `{name}`"),
            Self::DueIn(time) => write!(f, "due in {time:?}"),
        }
    }
}

fn standing(states: &[State]) -> &'static str {
    match states {
        [State::Done] => "that are done",
        [State::Dead] => "that are dead",
        _ => "in the outbox",
    }
}

/// Whether `part` is in `whole`: an object may have more fields, at any depth.
fn contains(whole: &Json, part: &Json) -> bool {
    match (whole, part) {
        (Json::Object(whole), Json::Object(part)) => part
            .iter()
            .all(|(name, part)| whole.get(name).is_some_and(|whole| contains(whole, part))),
        _ => whole == part,
    }
}

/// All messages in these states, by id.
async fn everything(room: &Postroom, states: &[State]) -> Result<Vec<OutboxMessage>, Error> {
    let mut all = Vec::new();
    for state in states {
        let mut list = List::new(*state).limit(1000);
        loop {
            let page = room.outbox().list(&list).await?;
            let Some(last) = page.last() else { break };
            list = list.after(last.id);
            all.extend(page);
        }
    }
    all.sort_by_key(|message| message.id);
    Ok(all)
}

impl std::fmt::Debug for Expectation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Expectation")
            .field("topic", &self.topic)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::contains;

    #[test]
    fn an_object_may_have_more_fields_at_any_depth() {
        let whole = json!({"id": 7, "to": {"city": "Bern", "zip": "3000"}, "lines": [1, 2]});
        assert!(contains(&whole, &json!({})));
        assert!(contains(&whole, &json!({"to": {"city": "Bern"}})));
        assert!(contains(&whole, &json!({"lines": [1, 2], "id": 7})));
    }

    #[test]
    fn all_else_must_be_equal() {
        let whole = json!({"id": 7, "lines": [1, 2]});
        assert!(!contains(&whole, &json!({"id": "7"})));
        assert!(!contains(&whole, &json!({"lines": [1]})));
        assert!(!contains(&whole, &json!({"other": null})));
        assert!(!contains(&json!(7), &json!({})));
    }
}
