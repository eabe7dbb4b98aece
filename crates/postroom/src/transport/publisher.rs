//! What a broker is to the dispatcher: something that takes envelopes.

use std::future::Future;
use std::sync::Arc;

use super::{Endpoint, Envelope};
use crate::dispatch::HandlerError;

/// Sends envelopes to where they go. When it says that one is published, the broker must have it: the
/// message is done then.
///
/// An envelope may be published more than once, after a crash or a lost answer. Give the broker its
/// `message_id`, so that it or the receiver can tell.
///
/// ```
/// use postroom::HandlerError;
/// use postroom::transport::{Endpoint, Envelope, Publisher};
///
/// struct Screen;
///
/// impl Publisher for Screen {
///     async fn publish(&self, envelope: &Envelope, destination: &Endpoint) -> Result<(), HandlerError> {
///         if destination.address.is_empty() {
///             return Err(HandlerError::permanent("no address"));
///         }
///         println!("{} to {}", envelope.message_id, destination.name);
///         Ok(())
///     }
/// }
/// ```
pub trait Publisher: Send + Sync + 'static {
    /// Publishes one envelope. The future may be dropped: when the lease is lost, and when the
    /// dispatcher's time to stop has run out.
    fn publish(
        &self,
        envelope: &Envelope,
        destination: &Endpoint,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Publishes several and says how it went with each, in their order. One after the other, unless a
    /// broker knows better; one that fails does not stop the rest.
    fn publish_batch(
        &self,
        messages: &[(Envelope, Endpoint)],
    ) -> impl Future<Output = Vec<Result<(), HandlerError>>> + Send {
        async move {
            let mut results = Vec::with_capacity(messages.len());
            for (envelope, destination) in messages {
                results.push(self.publish(envelope, destination).await);
            }
            results
        }
    }
}

/// Several may share one.
impl<P: Publisher> Publisher for Arc<P> {
    async fn publish(
        &self,
        envelope: &Envelope,
        destination: &Endpoint,
    ) -> Result<(), HandlerError> {
        P::publish(self, envelope, destination).await
    }

    async fn publish_batch(
        &self,
        messages: &[(Envelope, Endpoint)],
    ) -> Vec<Result<(), HandlerError>> {
        P::publish_batch(self, messages).await
    }
}
