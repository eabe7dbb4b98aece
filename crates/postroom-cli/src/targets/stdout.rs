//! Messages as lines of JSON on standard output.

use std::io::Write;

use postroom::{Delivery, HandlerError, Outcome};
use serde_json::json;

/// Writes one line. It is out before the message is done.
pub(super) async fn deliver(delivery: &Delivery) -> Result<Outcome, HandlerError> {
    let mut line = line(delivery).to_string();
    line.push('\n');
    // On a thread where it may wait for its reader, and is not dropped in the middle of a line.
    let written = tokio::task::spawn_blocking(move || {
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes())?;
        out.flush()
    });
    written
        .await
        .map_err(|_| HandlerError::infrastructure("the line was not written"))??;
    Ok(Outcome::Done)
}

fn line(delivery: &Delivery) -> serde_json::Value {
    json!({
        "id": delivery.work_item_id().to_string(),
        "message_id": delivery.message_id(),
        "topic": delivery.topic(),
        "correlation_id": delivery.correlation_id(),
        "headers": delivery.headers(),
        "payload": delivery.payload(),
    })
}
