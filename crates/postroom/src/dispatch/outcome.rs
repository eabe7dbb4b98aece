//! What a handler may answer: an outcome, or an error of a class.

use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::io;
use std::time::Duration;

use crate::error::Error;
use crate::message::Message;

/// What became of a message, as its handler sees it.
///
/// A handler may also answer `Ok(())`, which is [`Outcome::Done`], or an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The message is done.
    #[default]
    Done,
    /// The message is done, and these follow from it: acked and enqueued in one transaction.
    DoneAndEnqueue(Vec<Message>),
    /// Try again, after this time or the policy's. Counts as an attempt.
    Retry(Option<Duration>),
    /// Nothing went wrong, but it is too early: look again after this time or the backoff. Uses up no
    /// attempt.
    NotReady(Option<Duration>),
}

impl Outcome {
    /// The message is done, and these follow from it.
    pub fn enqueue(messages: impl IntoIterator<Item = Message>) -> Self {
        Self::DoneAndEnqueue(messages.into_iter().collect())
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// The message is done: what most handlers end with. It also tells the compiler which error type a
/// closure has.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # use postroom::{Delivery, Message, Postroom, done};
/// # let room = Postroom::connect("sqlite::memory:").await?;
/// # room.deploy().await?;
/// # room.outbox().enqueue(&Message::new("order.created", "{}")).await?;
/// let dispatcher = room.dispatcher().on("order.created", |delivery: Delivery| async move {
///     println!("{}", delivery.topic());
///     done()
/// });
/// assert_eq!(dispatcher.drain().await?.done, 1);
/// # Ok::<(), postroom::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Never.
pub fn done() -> Result<Outcome, HandlerError> {
    Ok(Outcome::Done)
}

/// What a handler can be made of: its answer, in any of these forms.
pub trait IntoOutcome {
    /// The answer in its one form.
    ///
    /// # Errors
    /// The handler's.
    fn into_outcome(self) -> Result<Outcome, HandlerError>;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Result<Outcome, HandlerError> {
        done()
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Result<Outcome, HandlerError> {
        Ok(self)
    }
}

impl<T: Into<Outcome>, E: Into<HandlerError>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Result<Outcome, HandlerError> {
        self.map(Into::into).map_err(Into::into)
    }
}

/// Whose fault a failure is, which decides how long it is worth trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// The message or the code: a limited number of attempts. What is not known to be another class is
    /// this one.
    Business,
    /// Something that the handler needs is away: a limited time, however many attempts that takes.
    Infrastructure,
    /// No retry can help: dead at once.
    Permanent,
}

impl FailureClass {
    /// What a stored error begins with.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Self::Business | Self::Permanent => "[BUSINESS]",
            Self::Infrastructure => "[INFRA]",
        }
    }

    /// Its name in metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Business => "business",
            Self::Infrastructure => "infrastructure",
            Self::Permanent => "permanent",
        }
    }
}

/// Why a handler failed. Any error becomes one with `?`: infrastructure when it is, or was caused by, a
/// connection that failed or a [`postroom::Error`](Error) that is transient; business otherwise.
///
/// The text is logged and stored. What it quotes of the payload is cut out first, where that is a short
/// payload as a whole or 12 bytes and more of a longer one; keep secrets out of it.
///
/// ```
/// use std::time::Duration;
/// use postroom::HandlerError;
///
/// let closed = HandlerError::infrastructure("the bank is closed").retry_after(Duration::from_secs(3600));
/// let nonsense = HandlerError::permanent("an order without lines");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError {
    pub(crate) class: FailureClass,
    pub(crate) text: String,
    pub(crate) retry_after: Option<Duration>,
}

impl HandlerError {
    /// The message or the code is at fault.
    pub fn business(error: impl Display) -> Self {
        Self::new(FailureClass::Business, error)
    }

    /// Something that the handler needs is away.
    pub fn infrastructure(error: impl Display) -> Self {
        Self::new(FailureClass::Infrastructure, error)
    }

    /// No retry can help.
    pub fn permanent(error: impl Display) -> Self {
        Self::new(FailureClass::Permanent, error)
    }

    /// When to try again, instead of when the policy says. The policy still decides whether.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Whose fault it is.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        self.class
    }

    fn new(class: FailureClass, error: impl Display) -> Self {
        Self {
            class,
            text: error.to_string(),
            retry_after: None,
        }
    }
}

impl Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<E: StdError + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
        while let Some(current) = cause {
            if is_infrastructure(current) {
                return Self::infrastructure(error);
            }
            cause = current.source();
        }
        Self::business(error)
    }
}

fn is_infrastructure(error: &(dyn StdError + 'static)) -> bool {
    use io::ErrorKind::{
        AddrNotAvailable, BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset,
        HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable, NotConnected, TimedOut,
        UnexpectedEof,
    };
    if let Some(error) = error.downcast_ref::<Error>() {
        return error.is_transient();
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return matches!(
            error.kind(),
            AddrNotAvailable
                | BrokenPipe
                | ConnectionAborted
                | ConnectionRefused
                | ConnectionReset
                | HostUnreachable
                | Interrupted
                | NetworkDown
                | NetworkUnreachable
                | NotConnected
                | TimedOut
                | UnexpectedEof
        );
    }
    #[cfg(feature = "postgres")]
    if let Some(error) = error.downcast_ref::<tokio_postgres::Error>() {
        return crate::db::postgres::database_error(error).is_transient();
    }
    #[cfg(feature = "mssql")]
    if let Some(error) = error.downcast_ref::<tiberius::error::Error>() {
        return crate::db::mssql::database_error(error).is_transient();
    }
    #[cfg(feature = "sqlite")]
    if let Some(error) = error.downcast_ref::<rusqlite::Error>() {
        return crate::db::sqlite::database_error(error).is_transient();
    }
    #[cfg(feature = "mysql")]
    if let Some(error) = error.downcast_ref::<mysql_async::Error>() {
        return crate::db::mysql::database_error(error).is_transient();
    }
    #[cfg(any(
        feature = "sqlx-mysql",
        feature = "sqlx-postgres",
        feature = "sqlx-sqlite"
    ))]
    if let Some(error) = error.downcast_ref::<sqlx::Error>() {
        use sqlx::Error::{Io, PoolClosed, PoolTimedOut, Tls, WorkerCrashed};
        return matches!(
            error,
            Io(_) | Tls(_) | PoolTimedOut | PoolClosed | WorkerCrashed
        );
    }
    error.is::<tokio::time::error::Elapsed>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_is_infrastructure() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(
            HandlerError::from(refused).class(),
            FailureClass::Infrastructure
        );
    }

    #[test]
    fn what_is_not_known_is_business() {
        let error = "x".parse::<u8>().expect_err("not a number");
        assert_eq!(HandlerError::from(error).class(), FailureClass::Business);
    }
}
