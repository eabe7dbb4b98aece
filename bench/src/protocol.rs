//! What the driver and the contenders say to each other: a line of JSON each, on a contender's standard
//! input and output. Contenders in other languages speak it too (see `bench/peers`).

use serde::{Deserialize, Serialize};

/// What a contender is asked to do.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Remove all messages.
    Clean,
    /// `tasks` tasks at once enqueue `each` messages, one call and one commit each.
    Enqueue {
        tasks: usize,
        each: usize,
        #[serde(default, skip_serializing_if = "Queue::is_outbox")]
        queue: Queue,
        /// With a dispatcher of connections of its own at work meanwhile.
        #[serde(default, skip_serializing_if = "is_false")]
        dispatching: bool,
    },
    /// Enqueue in batches of [`BULK`](crate::side::BULK).
    Fill {
        messages: usize,
        /// Every message is a step of a join, a hundred to each.
        #[serde(default, skip_serializing_if = "is_false")]
        joins: bool,
    },
    /// Handle and complete that many, with a handler that does nothing.
    Drain {
        messages: usize,
        #[serde(default, skip_serializing_if = "Queue::is_outbox")]
        queue: Queue,
        /// By calls of claim and ack instead of the dispatcher.
        #[serde(default, skip_serializing_if = "is_false")]
        by_hand: bool,
    },
    /// From an enqueue on an idle queue to the handler.
    Latency { samples: usize },
    /// Producers and a dispatcher for a while.
    Steady { seconds: u64, producers: usize },
    /// Start a dispatcher that others may help.
    Dispatch,
    /// How many that dispatcher has handled.
    Handled,
    /// Stop it.
    Stop,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Queue {
    #[default]
    Outbox,
    Inbox,
}

impl Queue {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    fn is_outbox(&self) -> bool {
        *self == Self::Outbox
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The first line of a contender: it can be asked now.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// Its name and version.
    pub(crate) ready: String,
}

/// What a contender did, by its own clock.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    pub(crate) messages: usize,
    pub(crate) seconds: f64,
    /// From an enqueue to the handler, in seconds; some of them where there are many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) delays: Vec<f64>,
    /// Why it could not be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}
