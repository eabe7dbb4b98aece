//! An envelope: bytes with a type and headers, and the endpoint it is for.

use std::collections::BTreeMap;

/// Where an envelope goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// What people call it.
    pub name: String,
    /// The queue, subject or topic of the broker. It is also the outbox topic.
    pub address: String,
}

impl Endpoint {
    /// An endpoint.
    pub fn new(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            address: address.into(),
        }
    }
}

/// A message on the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The sender's id of the message.
    pub message_id: String,
    /// What kind of message it is.
    pub message_type: String,
    /// The content, any bytes.
    pub payload: Vec<u8>,
    /// Small facts about it.
    pub headers: BTreeMap<String, String>,
}

impl Envelope {
    /// An envelope without headers.
    pub fn new(
        message_id: impl Into<String>,
        message_type: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Self {
        Self {
            message_id: message_id.into(),
            message_type: message_type.into(),
            payload: payload.into(),
            headers: BTreeMap::new(),
        }
    }

    /// The same envelope with one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }
}

/// The payload never shows.
impl std::fmt::Debug for Envelope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Envelope")
            .field("message_id", &self.message_id)
            .field("message_type", &self.message_type)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}
