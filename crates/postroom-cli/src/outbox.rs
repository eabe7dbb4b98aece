//! How outbox messages are shown: as rows of a table, and as JSON.

use postroom::{OutboxMessage, Progress, State};
use serde_json::{Value, json};

use crate::{age, table};

/// Writes a table of messages.
pub(crate) fn print(messages: &[OutboxMessage]) -> std::io::Result<()> {
    let rows: Vec<_> = messages
        .iter()
        .map(|message| {
            [
                message.id.to_string(),
                message.topic.clone(),
                state(message.state).replace('_', " "),
                age::since(message.created_at),
                message.progress.attempt_count.to_string(),
                message.correlation_id.clone().unwrap_or_default(),
                message.progress.last_error.clone().unwrap_or_default(),
            ]
        })
        .collect();
    table::print(
        [
            "id",
            "topic",
            "state",
            "enqueued",
            "retries",
            "correlation",
            "error",
        ],
        &rows,
    )
}

/// A message for programs. Payload and headers are in it only when somebody asked for them.
pub(crate) fn as_json(message: &OutboxMessage, show_payload: bool) -> Value {
    let mut value = json!({
        "id": message.id.to_string(),
        "message_id": message.message_id.to_string(),
        "topic": message.topic,
        "state": state(message.state),
        "correlation_id": message.correlation_id,
        "created_at": age::stamp(message.created_at),
        "due_at": message.due_time.map(age::stamp),
    });
    add_progress(&mut value, &message.progress);
    if show_payload {
        value["payload"] = json!(message.payload);
        value["headers"] = json!(message.headers);
    }
    value
}

/// The fields that messages of both queues have.
pub(crate) fn add_progress(value: &mut Value, progress: &Progress) {
    value["attempt_count"] = json!(progress.attempt_count);
    value["deferral_count"] = json!(progress.deferral_count);
    value["delivery_count"] = json!(progress.delivery_count);
    value["next_attempt_at"] = json!(progress.next_attempt_at.map(age::stamp));
    value["locked_until"] = json!(progress.locked_until.map(age::stamp));
    value["last_attempt_at"] = json!(progress.last_attempt_at.map(age::stamp));
    value["last_error"] = json!(progress.last_error);
    value["processed_at"] = json!(progress.processed_at.map(age::stamp));
    value["processed_by"] = json!(progress.processed_by);
}

/// The name of a state in JSON.
pub(crate) fn state(state: State) -> &'static str {
    match state {
        State::Ready => "ready",
        State::InFlight => "in_flight",
        State::Done => "done",
        State::Dead => "dead",
    }
}
