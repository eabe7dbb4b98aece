//! Webhooks, as senders send them, to the real daemon.

#[path = "../daemon/mod.rs"]
mod daemon;

mod acceptance;
mod duplicates;
mod kills;
mod limits;
mod secrecy;
mod sender;
