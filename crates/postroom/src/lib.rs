//! Reliable messaging from the database you already have.
//!
//! One mechanism, seen from three doors. A work queue in your database is the mechanism: a worker
//! claims messages, holds them under a lease, and settles them. The [`Outbox`] puts messages into it
//! inside your transaction. The [`Inbox`] puts inbound messages into it once per source and id.
//! [`Joins`] count settled messages and let the next one go.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! use postroom::{Delivery, Message, Postroom, done};
//!
//! let room = Postroom::connect("sqlite::memory:").await?;
//! room.deploy().await?;
//!
//! room.outbox().enqueue(&Message::new("order.created", r#"{"id":7}"#).correlation("req-1")).await?;
//!
//! let dispatcher = room.dispatcher().on("order.created", |delivery: Delivery| async move {
//!     println!("{} {}", delivery.topic(), delivery.payload());
//!     done()
//! });
//! assert_eq!(dispatcher.drain().await?.done, 1);
//! # Ok::<(), postroom::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Dispatcher`] is the loop around it: handlers, leases that renew, retries, transactions, shutdown.
//! Whoever wants a loop of their own claims and settles by hand: see [`Outbox::claim`].
//!
//! In your own transaction, with the client library that you already use (see [`tx`]):
//!
//! ```no_run
//! # async fn example(room: postroom::Postroom, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use postroom::Message;
//!
//! let mut transaction = client.transaction().await?;
//! transaction.execute("INSERT INTO orders (id) VALUES (7)", &[]).await?;
//! room.outbox().enqueue_in(&mut transaction, &Message::new("order.created", r#"{"id":7}"#)).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Promises
//! - Enqueue is atomic with your transaction: both or neither.
//! - A committed message is handed out until it is acked or failed: at least once.
//! - At most one live lease per message, by the database's clock; a late ack, abandon, fail or renewal
//!   changes nothing.
//! - What a handler writes in the transaction of its ack ([`Tx`], [`Delivery::ack_in`]) happens exactly
//!   once.
//! - At most one done per (source, message id) in the inbox.
//! - Join counters are exact, and move in the transaction that settles the step.

#[cfg(not(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "mysql",
    feature = "mssql"
)))]
compile_error!(
    "postroom needs a database: turn on the feature `sqlite`, `postgres`, `mysql` or `mssql`"
);

mod audit;
pub mod client;
mod db;
mod dispatch;
mod error;
pub mod events;
pub mod fleet;
mod id;
mod inbound;
mod inbox;
pub mod jobs;
mod join;
mod list;
mod message;
mod migrate;
mod observe;
mod once;
mod options;
mod outbox;
mod room;
mod sql;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transport;
pub mod tx;
mod wait;
mod wake;
mod watermark;
mod work;

pub use audit::{Audit, AuditEntry};
pub use dispatch::{
    Backoff, Delivered, Delivery, Dispatcher, Extract, Failure, FailureClass, Handler,
    HandlerError, HoneyDrunk, IntoHandler, IntoOutcome, JoinWaitHandler, Json, NoHandler, Outcome,
    Report, RetryPolicy, Running, Tx, Verdict, done, stop_signal,
};
pub use error::{Error, ErrorKind};
pub use fleet::Fleet;
pub use id::{InboxMessageId, JoinId, MessageId, OwnerToken, WorkItemId};
pub use inbound::{Accepted, Arrival, Inbound, InboxKeys, Sighting};
pub use inbox::Inbox;
pub use join::{Attached, Join, JoinMember, JoinStatus, Joins, NewJoin, Reported, StepStatus};
pub use list::{DeadFilter, List};
pub use message::{
    Counts, InboxCounts, InboxMessage, InboxState, Message, OutboxMessage, Progress, Receipt, State,
};
pub use observe::{
    Cause, Diagnosis, Finding, Health, HealthCheck, HealthStatus, Origin, Propagator, QueueStats,
    Severity, Stats, TopicCounts, Totals, TraceContext, in_trace,
};
pub use once::Once;
pub use options::{Options, Synchronous};
pub use outbox::Outbox;
pub use room::Postroom;
pub use sql::{Dialect, Operation, OperationStatement, Queue, Statement, Value};
pub use store::Abandon;
pub use wait::{JoinWait, WaitDecision};
pub use work::Handled;

/// The programs in the README and the guides, compiled with the tests.
#[cfg(all(
    doctest,
    feature = "sqlite",
    feature = "postgres",
    feature = "sqlx-postgres",
    feature = "testing"
))]
mod guides {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/domain-events.md")]
    struct DomainEvents;
    #[doc = include_str!("../../../docs/fleet.md")]
    struct Fleets;
    #[doc = include_str!("../../../docs/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../../../docs/guarantees.md")]
    struct Guarantees;
    #[doc = include_str!("../../../docs/jobs.md")]
    struct Jobs;
    #[doc = include_str!("../../../docs/observability.md")]
    struct Observability;
    #[doc = include_str!("../../../docs/operations.md")]
    struct Operations;
    #[doc = include_str!("../../../docs/postgres.md")]
    struct Postgres;
    #[doc = include_str!("../../../docs/sqlite.md")]
    struct Sqlite;
    #[cfg(feature = "mysql")]
    #[doc = include_str!("../../../docs/mysql.md")]
    struct MySql;
    #[cfg(feature = "mssql")]
    #[doc = include_str!("../../../docs/sqlserver.md")]
    struct SqlServer;
    #[doc = include_str!("../../../docs/words.md")]
    struct Words;
}
