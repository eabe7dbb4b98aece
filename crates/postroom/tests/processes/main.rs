//! Dispatchers in real processes that are killed, frozen, told to stop, or killed by their own messages.
//! Handlers write to a ledger without any unique constraint, in the transaction that acks: whatever
//! happens, each message must be in it once.

#![allow(clippy::unwrap_used, reason = "tests")]

mod crash;
mod database;
mod freeze;
mod stop;
mod worker;

/// What a child process runs. Without an order from a parent it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    worker::child().await;
}
