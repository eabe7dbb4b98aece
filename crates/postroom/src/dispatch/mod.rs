//! The dispatcher: claim, route by exact topic, handle, settle. Outbox and inbox run on the same loop.
//! Here live the loop, handlers and what they may answer, leases, retry policies and shutdown; SQL and
//! connections do not.

mod delivery;
mod dispatcher;
mod engine;
mod handler;
mod join_wait;
mod lease;
mod outcome;
mod pace;
mod redact;
mod retry;
mod run;
mod stop;
mod transaction;
mod turn;
mod work;

pub use delivery::{Delivered, Delivery};
pub(crate) use dispatcher::Settings;
pub use dispatcher::{Dispatcher, NoHandler};
pub(crate) use engine::{Engine, Turn};
pub(crate) use handler::Handlers;
pub use handler::{Extract, Handler, IntoHandler, Json};
pub use join_wait::JoinWaitHandler;
pub use outcome::{FailureClass, HandlerError, IntoOutcome, Outcome, done};
pub(crate) use pace::Pace;
pub use retry::{Backoff, Failure, HoneyDrunk, RetryPolicy, Verdict};
pub(crate) use run::{AbortOnDrop, Crew, after_turn, drain, helpers, once, stop_by};
pub use run::{Report, Running};
pub use stop::stop_signal;
pub use transaction::Tx;
