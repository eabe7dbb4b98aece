//! Enqueueing once per key, whoever repeats the request and however often.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::{Error, ErrorKind};
use crate::message::{Message, NAME_LIMIT, Receipt, check_name, headers_text, micros};
use crate::outbox::{correlation, log_enqueued, receipt};
use crate::sql::Queue;
use crate::store::{Cutoff, Store};

/// What an enqueue under a key has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Once {
    /// The key was new: the message is enqueued.
    New(Receipt),
    /// The key was used before, for the same message: this is the receipt of then.
    Again(Receipt),
}

impl Once {
    /// The receipt of the message that stands under the key.
    #[must_use]
    pub fn receipt(self) -> Receipt {
        match self {
            Self::New(receipt) | Self::Again(receipt) => receipt,
        }
    }

    /// Whether this call has enqueued it.
    #[must_use]
    pub fn is_new(self) -> bool {
        matches!(self, Self::New(_))
    }
}

const PARAM: &str = "idempotency_key";

pub(crate) async fn enqueue_once(
    store: &Store,
    key: &str,
    message: &Message,
) -> Result<Once, Error> {
    check_name(PARAM, key, NAME_LIMIT)?;
    message.check()?;
    let fresh = receipt(message);
    let joins: Vec<Uuid> = message.joins.iter().map(|join| join.as_uuid()).collect();
    let call = store
        .catalog
        .enqueue_once
        .call(vec![
            key.into(),
            fingerprint(message).into(),
            fresh.work_item_id.as_uuid().into(),
            fresh.message_id.as_uuid().into(),
            message.topic.as_str().into(),
            message.payload.as_str().into(),
            headers_text(&message.headers, store.trace()).into(),
            correlation(message).into(),
            message.due_at.map(micros).into(),
            joins.into(),
        ])
        .quick();
    let mut rows = store.run("enqueue_once", "outbox", vec![call]).await?.rows;
    let mut row = rows
        .pop()
        .ok_or_else(|| ErrorKind::Schema.with("an enqueue returned no row"))?;
    let receipt = Receipt {
        work_item_id: row.uuid()?.into(),
        message_id: row.uuid()?.into(),
    };
    match row.int()? {
        0 => {
            store.added(Queue::Outbox);
            log_enqueued(store, std::slice::from_ref(message));
            Ok(Once::New(receipt))
        }
        1 => Ok(Once::Again(receipt)),
        _ => Err(ErrorKind::Conflict { param: PARAM }
            .with("the key was used before for another message; use a fresh key for each message")),
    }
}

/// Forgets one batch of keys that are older than the cutoff.
pub(crate) async fn forget_keys(store: &Store, cutoff: Cutoff, batch: i64) -> Result<u64, Error> {
    let (age, before) = cutoff.age_or_time();
    let values = vec![age.into(), before.into(), batch.into()];
    let call = store.catalog.forget_keys.call(values);
    store.number("cleanup", "outbox", call).await
}

/// What makes two messages the same: a hash over all that the caller chose. The trace that a message is
/// enqueued in is not part of it, because a repeated request has another.
fn fingerprint(message: &Message) -> Vec<u8> {
    let mut hasher = Sha256::new();
    // Each part with its length in front, so that no two lists of parts look alike.
    let mut part = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    part(message.topic.as_bytes());
    part(message.payload.as_bytes());
    part(correlation(message).unwrap_or_default().as_bytes());
    let due = message.due_at.map(micros).map(i64::to_be_bytes);
    part(due.as_ref().map_or(&[], |due| due.as_slice()));
    let mut joins: Vec<Uuid> = message.joins.iter().map(|join| join.as_uuid()).collect();
    joins.sort_unstable();
    joins.dedup();
    part(
        &joins
            .iter()
            .flat_map(Uuid::as_bytes)
            .copied()
            .collect::<Vec<_>>(),
    );
    for (name, value) in &message.headers {
        part(name.as_bytes());
        part(value.as_bytes());
    }
    // After the pairs, one part alone can be nothing else.
    if let Some(id) = message.message_id {
        part(id.as_uuid().as_bytes());
    }
    hasher.finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::id::{JoinId, MessageId, WorkItemId};

    #[test]
    fn every_part_of_a_message_makes_it_another() {
        let join = JoinId::from(Uuid::from_u128(7));
        let plain = Message::new("a", "b");
        let others = [
            Message::new("ab", ""),
            Message::new("a", "c"),
            plain.clone().header("x", "y"),
            plain.clone().header("xy", ""),
            plain.clone().correlation("c"),
            plain.clone().due_at(UNIX_EPOCH),
            plain.clone().due_at(UNIX_EPOCH + Duration::from_secs(1)),
            plain.clone().join(join),
            plain.clone().message_id(MessageId::new()),
        ];
        let mut seen = std::collections::HashSet::from([fingerprint(&plain)]);
        for other in others {
            assert!(seen.insert(fingerprint(&other)), "{other:?}");
        }
    }

    #[test]
    fn what_the_caller_did_not_mean_makes_no_difference() {
        let join = JoinId::from(Uuid::from_u128(7));
        let plain = Message::new("a", "b").join(join);
        for same in [
            plain.clone().correlation(""),
            plain.clone().id(WorkItemId::new()),
            plain.clone().join(join),
        ] {
            assert_eq!(fingerprint(&same), fingerprint(&plain));
        }
    }
}
