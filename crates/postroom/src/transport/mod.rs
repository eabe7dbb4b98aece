//! Transport: envelopes and where they go, the outbox that keeps them, and the dispatcher that gives them
//! to a publisher. Brokers are publishers. A database never lives here: the outbox is asked instead.

mod dispatcher;
mod envelope;
mod outbox;
mod publisher;

pub use dispatcher::{DispatcherOptions, OutboxDispatcher};
pub use envelope::{Endpoint, Envelope};
pub use outbox::{Loaded, OutboxState, TransportMessage, TransportOutbox};
pub use publisher::Publisher;
