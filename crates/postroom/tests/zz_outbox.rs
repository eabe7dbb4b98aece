//! Temporary.
#![allow(clippy::unwrap_used, reason = "tests")]
#[path = "conformance/outbox_claim.rs"]
mod outbox_claim;
#[path = "conformance/outbox_enqueue.rs"]
mod outbox_enqueue;
#[path = "conformance/outbox_reap.rs"]
mod outbox_reap;
#[path = "conformance/outbox_settle.rs"]
mod outbox_settle;
#[path = "conformance/outbox_admin.rs"]
mod outbox_admin;
#[path = "conformance/outbox_consistency.rs"]
mod outbox_consistency;
#[path = "conformance/observability.rs"]
mod observability;
#[path = "conformance/transport.rs"]
mod transport;
