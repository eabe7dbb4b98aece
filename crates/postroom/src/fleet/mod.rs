//! Many stores as one: a database per tenant, say. A [`Fleet`] knows its stores by key, from a list or by
//! [discovery](Discovery), routes writers to them, and lets one dispatcher work them all. A
//! [`Strategy`] says which store is asked next.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! use postroom::{Delivery, Fleet, Message, Options};
//!
//! let store = |schema| Options::new("sqlite::memory:").schema(schema).deploy(true);
//! let fleet = Fleet::builder()
//!     .store("acme", store("acme"))
//!     .store("globex", store("globex"))
//!     .open()
//!     .await?;
//!
//! fleet.outbox("acme")?.enqueue(&Message::new("order.created", "7")).await?;
//!
//! let report = fleet
//!     .dispatcher()
//!     .on("order.created", |delivery: Delivery| async move {
//!         assert_eq!(delivery.room().key(), Some("acme"));
//!     })
//!     .drain()
//!     .await?;
//! assert_eq!(report.done, 1);
//! # Ok::<(), postroom::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Here live the list of stores, its changes, the router, and the order in which stores are asked. What
//! happens to messages is the dispatcher's business.

mod builder;
mod discovery;
mod gate;
mod key;
mod roster;
mod router;
mod run;
mod strategy;

pub use builder::FleetBuilder;
pub use discovery::{Changes, Discovery, DiscoveryError};
pub use key::StoreKey;
pub use router::Fleet;
pub(crate) use run::{drain, once, start};
pub use strategy::{Asked, Candidate, DrainFirst, RoundRobin, Strategy};
