//! What can be seen of a store from outside: numbers, health, and the traces that messages belong to.
//! Log lines and the metrics of single operations are where the operations are, in `store.rs`.

mod diagnose;
mod health;
mod held;
mod stats;
mod topics;
mod totals;
pub(crate) mod trace;

pub use diagnose::{Cause, Diagnosis, Finding, Severity};
pub use health::{Health, HealthCheck, HealthStatus};
pub use stats::{QueueStats, Stats};
pub use topics::TopicCounts;
pub use totals::Totals;
pub use trace::{Origin, Propagator, TraceContext, in_trace};
