//! Where messages go without a line of Rust: an HTTP endpoint, a command, standard output.
//!
//! Each of them is a [`Destination`]. A broker is one more: a variant here, a file beside `http.rs`, and a
//! key beside `http` in the configuration.

mod address;
mod command;
mod http;
mod signature;
mod stdout;

use std::sync::Arc;

use anyhow::{Context, bail};
use postroom::{Delivery, Dispatcher, Handler, HandlerError, Outcome};

pub(crate) use address::endpoint;
pub(crate) use signature::SigningKey;

use crate::config::{Queue, Target};
use command::Program;
use http::{Clients, Endpoint};

/// Stands for every topic that no other target names.
const EVERY_OTHER: &str = "*";

/// Lets a dispatcher deliver to these targets.
pub(crate) fn install(
    mut dispatcher: Dispatcher,
    targets: &[Target],
) -> anyhow::Result<Dispatcher> {
    let mut clients = Clients::default();
    for target in targets {
        let destination = Destination::of(target, &mut clients).with_context(|| {
            format!("the target of {} cannot be made", target.topics.join(", "))
        })?;
        for topic in &target.topics {
            let to = destination.clone();
            dispatcher = match (target.queue, topic.as_str()) {
                (Queue::Outbox, EVERY_OTHER) => dispatcher.otherwise::<()>(to),
                (Queue::Outbox, topic) => dispatcher.on::<()>(topic, to),
                (Queue::Inbox, EVERY_OTHER) => dispatcher.otherwise_inbound::<()>(to),
                (Queue::Inbox, topic) => dispatcher.on_inbound::<()>(topic, to),
            };
        }
    }
    Ok(dispatcher)
}

/// What takes messages somewhere, for all topics of a target.
#[derive(Clone)]
enum Destination {
    Http(Arc<Endpoint>),
    Command(Arc<Program>),
    Stdout,
}

impl Destination {
    fn of(target: &Target, clients: &mut Clients) -> anyhow::Result<Self> {
        Ok(match (&target.http, &target.command, target.stdout) {
            (Some(http), None, false) => Self::Http(Arc::new(Endpoint::new(http, clients)?)),
            (None, Some(command), false) => Self::Command(Arc::new(Program::new(command))),
            (None, None, true) => Self::Stdout,
            _ => bail!("it needs http, command or stdout, and one of them only"),
        })
    }
}

impl Handler for Destination {
    async fn handle(&self, delivery: Delivery) -> Result<Outcome, HandlerError> {
        match self {
            Self::Http(endpoint) => endpoint.deliver(&delivery).await,
            Self::Command(program) => program.deliver(&delivery).await,
            Self::Stdout => stdout::deliver(&delivery).await,
        }
    }
}
