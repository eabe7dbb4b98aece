//! Handlers: a trait, closures that ask for what they need, and the table that routes to them.

use std::collections::HashMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Histogram, histogram};
use serde::de::DeserializeOwned;

use super::delivery::Delivery;
use super::join_wait::JoinWaitHandler;
use super::outcome::{HandlerError, IntoOutcome, Outcome};
use super::transaction::Tx;
use crate::db::BoxFuture;
use crate::error::{Error, ErrorKind};
use crate::message::{NAME_LIMIT, check_name};
use crate::sql::Queue;

/// Handles the messages of a topic. It must be idempotent: a message may come more than once, though
/// never twice at the same time.
///
/// A closure is a handler too: see [`Dispatcher::on`](crate::Dispatcher::on).
///
/// ```
/// use postroom::{Delivery, Handler, HandlerError, Outcome};
///
/// struct Ship;
///
/// impl Handler for Ship {
///     async fn handle(&self, delivery: Delivery) -> Result<Outcome, HandlerError> {
///         println!("{} of {}", delivery.topic(), delivery.message_id());
///         Ok(Outcome::Done)
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Handles one message. The future is dropped when the lease is lost, when the handler takes too
    /// long, and when the dispatcher's time to stop has run out.
    fn handle(
        &self,
        delivery: Delivery,
    ) -> impl Future<Output = Result<Outcome, HandlerError>> + Send;
}

/// What a closure can ask for: the [`Delivery`] itself, its payload as [`Json`], a transaction ([`Tx`]).
pub trait Extract: Sized + Send {
    /// Takes it from the delivery.
    ///
    /// # Errors
    /// When the message does not have it.
    fn extract(delivery: &Delivery) -> Result<Self, HandlerError>;
}

impl Extract for Delivery {
    fn extract(delivery: &Delivery) -> Result<Self, HandlerError> {
        Ok(delivery.clone())
    }
}

impl Extract for Tx {
    fn extract(delivery: &Delivery) -> Result<Self, HandlerError> {
        Ok(delivery.transaction())
    }
}

/// The payload, read as JSON. One that cannot be read is a permanent failure: no retry mends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned + Send> Extract for Json<T> {
    fn extract(delivery: &Delivery) -> Result<Self, HandlerError> {
        serde_json::from_str(delivery.payload())
            .map(Json)
            .map_err(|error| {
                // serde's own words quote the payload: only where, never what.
                HandlerError::permanent(format!(
                    "the payload is not the expected JSON: {:?} error at line {} column {}",
                    error.classify(),
                    error.line(),
                    error.column()
                ))
            })
    }
}

impl<T> std::ops::Deref for Json<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A handler in any of its forms; `Args` tells them apart.
pub trait IntoHandler<Args>: Send + Sync + Sized + 'static {
    /// The handler in its one form.
    fn into_handler(self) -> impl Handler;
}

impl<H: Handler> IntoHandler<()> for H {
    fn into_handler(self) -> impl Handler {
        self
    }
}

/// A closure with the arguments that it asks for.
struct Closure<F, Args>(F, PhantomData<fn(Args)>);

macro_rules! closures {
    ($($argument:ident),+) => {
        impl<F, Fut, $($argument),+> IntoHandler<($($argument,)+)> for F
        where
            F: Fn($($argument),+) -> Fut + Send + Sync + 'static,
            Fut: Future + Send,
            Fut::Output: IntoOutcome,
            $($argument: Extract + 'static),+
        {
            fn into_handler(self) -> impl Handler {
                Closure(self, PhantomData::<fn(($($argument,)+))>)
            }
        }

        impl<F, Fut, $($argument),+> Handler for Closure<F, ($($argument,)+)>
        where
            F: Fn($($argument),+) -> Fut + Send + Sync + 'static,
            Fut: Future + Send,
            Fut::Output: IntoOutcome,
            $($argument: Extract + 'static),+
        {
            async fn handle(&self, delivery: Delivery) -> Result<Outcome, HandlerError> {
                let running = (self.0)($($argument::extract(&delivery)?),+);
                running.await.into_outcome()
            }
        }
    };
}

closures!(A);
closures!(A, B);
closures!(A, B, C);

/// A handler whose type is forgotten.
trait Erased: Send + Sync {
    fn handle(&self, delivery: Delivery) -> BoxFuture<'_, Result<Outcome, HandlerError>>;
}

impl<H: Handler> Erased for H {
    fn handle(&self, delivery: Delivery) -> BoxFuture<'_, Result<Outcome, HandlerError>> {
        Box::pin(Handler::handle(self, delivery))
    }
}

/// A registered handler.
#[derive(Clone)]
pub(super) struct Registered {
    name: &'static str,
    handler: Arc<dyn Erased>,
    /// How long it takes; set when the dispatcher starts.
    seconds: Option<Histogram>,
}

impl Registered {
    pub(super) fn new<Args>(handler: impl IntoHandler<Args>) -> Self {
        fn named<A, H: IntoHandler<A>>(_: &H) -> &'static str {
            std::any::type_name::<H>()
        }
        Self {
            name: named(&handler),
            handler: Arc::new(handler.into_handler()),
            seconds: None,
        }
    }

    pub(super) fn handle(
        &self,
        delivery: Delivery,
    ) -> BoxFuture<'_, Result<Outcome, HandlerError>> {
        self.handler.handle(delivery)
    }

    pub(super) fn record(&self, duration: Duration) {
        if let Some(seconds) = &self.seconds {
            seconds.record(duration);
        }
    }
}

/// The handlers of one queue, by exact topic.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    by_topic: HashMap<String, Registered>,
    otherwise: Option<Registered>,
    wrong: Option<Error>,
}

impl Handlers {
    /// A topic has one handler; a second one is an error that names both, told when the dispatcher
    /// starts.
    pub(super) fn add(&mut self, topic: String, handler: Registered) {
        if let Err(error) = check_name("topic", &topic, NAME_LIMIT) {
            self.wrong.get_or_insert(error);
        } else if let Some(first) = self.by_topic.get(&topic) {
            let error = ErrorKind::InvalidArgument { param: "topic" }.with(format!(
                "`{topic}` has two handlers, {} and {}; a topic has one",
                first.name, handler.name
            ));
            self.wrong.get_or_insert(error);
        } else {
            self.by_topic.insert(topic, handler);
        }
    }

    /// The handler of wait messages, unless somebody has a handler of their own for that topic.
    pub(super) fn add_join_wait(&mut self, topic: &str) {
        if !self.by_topic.contains_key(topic) {
            let handler = Registered::new::<()>(JoinWaitHandler);
            self.by_topic.insert(topic.to_owned(), handler);
        }
    }

    /// What handles the topics that nobody else does.
    pub(super) fn otherwise(&mut self, handler: Registered) {
        if let Some(first) = &self.otherwise {
            let error = ErrorKind::InvalidArgument { param: "otherwise" }.with(format!(
                "there are two handlers for all other topics, {} and {}",
                first.name, handler.name
            ));
            self.wrong.get_or_insert(error);
        } else {
            self.otherwise = Some(handler);
        }
    }

    /// Prepares the metrics of every handler. What handles all other topics has one for all of them: topics
    /// that anybody may make up would make too many.
    pub(super) fn measure(&mut self, store: &Arc<str>, queue: Queue) {
        let topics = self
            .by_topic
            .iter_mut()
            .map(|(topic, handler)| (topic.as_str(), handler));
        let otherwise = self.otherwise.iter_mut().map(|handler| ("*", handler));
        for (topic, handler) in topics.chain(otherwise) {
            handler.seconds = Some(histogram!(
                "postroom_handler_seconds",
                "store" => Arc::clone(store), "queue" => queue.name(), "topic" => topic.to_owned()
            ));
        }
    }

    pub(super) fn find(&self, topic: &str) -> Option<&Registered> {
        self.by_topic.get(topic).or(self.otherwise.as_ref())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_topic.is_empty() && self.otherwise.is_none()
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        self.wrong.clone().map_or(Ok(()), Err)
    }
}
