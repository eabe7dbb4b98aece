//! The handler of messages that wait for a join.

use super::delivery::{Delivered, Delivery};
use super::handler::Handler;
use super::outcome::{HandlerError, Outcome};
use crate::wait::Waiting;

/// Handles wait messages: a dispatcher of the outbox does so by itself, on the store's
/// [`join_wait_topic`](crate::Options::join_wait_topic). It decides from the join alone, in the store that
/// the message was claimed from: not complete, and the message goes on waiting without using up an
/// attempt; complete, and the continuation is enqueued and the message acked in one transaction; unknown,
/// and the message is dead.
#[derive(Debug, Clone, Copy, Default)]
pub struct JoinWaitHandler;

impl Handler for JoinWaitHandler {
    async fn handle(&self, delivery: Delivery) -> Result<Outcome, HandlerError> {
        let Delivered::Outbox(message) = delivery.message() else {
            return Err(HandlerError::permanent(
                "a wait message is an outbox message",
            ));
        };
        match delivery.room().joins().waiting_for(message).await? {
            Waiting::NotReady => Ok(Outcome::NotReady(None)),
            Waiting::Over(continuation) => Ok(Outcome::enqueue(continuation)),
            Waiting::ForNothing(error) => Err(HandlerError::permanent(error)),
        }
    }
}
