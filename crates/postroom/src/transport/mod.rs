//! Transport: envelopes and where they go. Brokers and publishers will live here; a database never
//! does, the outbox is asked instead.

mod envelope;
mod outbox;

pub use envelope::{Endpoint, Envelope};
pub use outbox::{Loaded, OutboxState, TransportMessage, TransportOutbox};
