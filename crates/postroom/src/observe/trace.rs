//! Traces that go on through a queue: the W3C trace context as text in a message's headers. A message
//! is enqueued with the context of its producer; whoever handles it goes on from there.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::num::{NonZeroU64, NonZeroU128};
use std::str::FromStr;

use serde::{Serialize, Serializer};
use tokio::task::futures::TaskLocalFuture;
use uuid::Uuid;

use crate::error::{Error, ErrorKind};
use crate::store::Store;

/// The header that carries the context. HTTP writes it in any case, so it is compared in any case.
const TRACEPARENT: &str = "traceparent";

/// The trace data may have been recorded.
const SAMPLED: u8 = 0b01;
/// The trace id was drawn at random.
const RANDOM: u8 = 0b10;

/// A place in a distributed trace, as the header `traceparent` of the
/// [W3C](https://www.w3.org/TR/trace-context/) names it: which trace, which span, whether it is sampled.
///
/// ```
/// use postroom::TraceContext;
///
/// let context = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")?;
/// assert!(context.is_sampled());
///
/// let child = context.child();
/// assert_eq!(child.trace_id(), context.trace_id());
/// assert_ne!(child.span_id(), context.span_id());
/// println!("traceparent: {child}");
/// # Ok::<(), postroom::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: NonZeroU128,
    span_id: NonZeroU64,
    flags: u8,
}

impl TraceContext {
    /// Reads the value of a `traceparent` header. Of a version that is not known yet, the fields that
    /// every version has are read. Flags that are not known are dropped.
    ///
    /// # Errors
    /// `InvalidArgument` when it is not what the W3C says: digits other than lower-case hexadecimal, an
    /// id of zeros, a field too many or too few, version `ff`.
    pub fn parse(traceparent: &str) -> Result<Self, Error> {
        Self::read(traceparent).ok_or_else(|| {
            ErrorKind::InvalidArgument { param: TRACEPARENT }.with(
                "expected `00-TRACE-SPAN-FLAGS` in 2, 32, 16 and 2 lower-case hexadecimal digits, \
                 no id all zeros",
            )
        })
    }

    fn read(traceparent: &str) -> Option<Self> {
        let mut fields = traceparent.split('-');
        let version = u8::from_str_radix(hexadecimal(fields.next()?, 2)?, 16).ok()?;
        let trace_id = u128::from_str_radix(hexadecimal(fields.next()?, 32)?, 16).ok()?;
        let span_id = u64::from_str_radix(hexadecimal(fields.next()?, 16)?, 16).ok()?;
        let flags = u8::from_str_radix(hexadecimal(fields.next()?, 2)?, 16).ok()?;
        let known = match version {
            0xff => return None,
            0 if fields.next().is_some() => return None,
            0 => SAMPLED | RANDOM,
            // What other bits will mean is not for us to guess.
            _ => SAMPLED,
        };
        Some(Self {
            trace_id: NonZeroU128::new(trace_id)?,
            span_id: NonZeroU64::new(span_id)?,
            flags: flags & known,
        })
    }

    /// A context from the bytes of its ids, for a [`Propagator`].
    ///
    /// # Errors
    /// `InvalidArgument` when an id is all zeros, which means that there is none.
    pub fn from_ids(trace_id: [u8; 16], span_id: [u8; 8], sampled: bool) -> Result<Self, Error> {
        let zeros = |param| ErrorKind::InvalidArgument { param }.with("must not be all zeros");
        Ok(Self {
            trace_id: NonZeroU128::new(u128::from_be_bytes(trace_id))
                .ok_or_else(|| zeros("trace_id"))?,
            span_id: NonZeroU64::new(u64::from_be_bytes(span_id))
                .ok_or_else(|| zeros("span_id"))?,
            flags: if sampled { SAMPLED } else { 0 },
        })
    }

    /// The beginning of a new trace, sampled: not to record it is for somebody to decide who records.
    #[must_use]
    pub fn new_root() -> Self {
        Self {
            // Never zero: a UUID holds its own version.
            trace_id: NonZeroU128::new(Uuid::new_v4().as_u128()).unwrap_or(NonZeroU128::MIN),
            span_id: new_span_id(),
            flags: SAMPLED | RANDOM,
        }
    }

    /// A new span of the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        Self {
            span_id: new_span_id(),
            ..self
        }
    }

    /// The context of the running task: that of [`in_trace`], or of the message that is being handled.
    #[must_use]
    pub fn current() -> Option<Self> {
        held().map(|held| match held {
            Held::ByCaller(context) | Held::ByHandling(context) => context,
        })
    }

    /// Which trace.
    #[must_use]
    pub fn trace_id(&self) -> [u8; 16] {
        self.trace_id.get().to_be_bytes()
    }

    /// Which span of it.
    #[must_use]
    pub fn span_id(&self) -> [u8; 8] {
        self.span_id.get().to_be_bytes()
    }

    /// Whether the trace may be recorded.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

/// Exactly so many lower-case hexadecimal digits.
fn hexadecimal(field: &str, digits: usize) -> Option<&str> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (field.len() == digits && field.bytes().all(is_digit)).then_some(field)
}

/// The half of a random UUID that holds its version, and so is never zero.
fn new_span_id() -> NonZeroU64 {
    let (half, _) = Uuid::new_v4().as_u64_pair();
    NonZeroU64::new(half).unwrap_or(NonZeroU64::MIN)
}

/// The value of the header.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "00-{:032x}-{:016x}-{:02x}",
            self.trace_id, self.span_id, self.flags
        )
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceContext({self})")
    }
}

impl FromStr for TraceContext {
    type Err = Error;

    fn from_str(traceparent: &str) -> Result<Self, Error> {
        Self::parse(traceparent)
    }
}

/// As the value of the header.
impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Runs a future in a trace: every message that it enqueues carries the context, unless the message
/// has a `traceparent` header of its own. A task that the future spawns is not in the trace, unless it
/// is put into it again.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use postroom::{Message, Postroom, TraceContext, in_trace};
///
/// # let room = Postroom::connect("sqlite::memory:").await?;
/// # room.deploy().await?;
/// // What came with the request, or a new trace.
/// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let request = TraceContext::parse(header).unwrap_or_else(|_| TraceContext::new_root());
///
/// let outbox = room.outbox();
/// let receipt = in_trace(request, outbox.enqueue(&Message::new("order.created", "7"))).await?;
/// let message = outbox.get(receipt.work_item_id).await?;
/// assert_eq!(message.map(|message| message.headers["traceparent"].clone()).as_deref(), Some(header));
/// # Ok::<(), postroom::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn in_trace<F: Future>(context: TraceContext, future: F) -> F::Output {
    HELD.scope(Some(Held::ByCaller(context)), future).await
}

/// Runs a handler: what it enqueues carries `context`, unless a propagator knows better. With none, it
/// carries nothing.
pub(crate) fn scope<F: Future>(
    context: impl Into<Option<TraceContext>>,
    future: F,
) -> TaskLocalFuture<Option<Held>, F> {
    HELD.scope(context.into().map(Held::ByHandling), future)
}

tokio::task_local! {
    static HELD: Option<Held>;
}

/// The context of the running task, and who has set it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Held {
    /// [`in_trace`]: the caller has said which context he wants.
    ByCaller(TraceContext),
    /// The message that is being handled. The handler's span, if somebody records it, is closer.
    ByHandling(TraceContext),
}

fn held() -> Option<Held> {
    HELD.try_with(|held| *held).ok().flatten()
}

/// A bridge to a tracing system, such as OpenTelemetry: where the producer's context comes from, and
/// how a handler's span joins the trace of its message. See [`Options::propagator`].
///
/// [`Options::propagator`]: crate::Options::propagator
pub trait Propagator: Send + Sync {
    /// The context of the span that the running task is in. It is asked at every enqueue outside of
    /// [`in_trace`], so it should be quick.
    fn current(&self) -> Option<TraceContext>;

    /// Puts a handler's span, which was just made and not entered yet, where its message comes from.
    fn adopt(&self, span: &tracing::Span, origin: Origin);
}

/// How a handler's span belongs to the context that its message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The first attempt is a part of the producer's trace.
    ChildOf(TraceContext),
    /// A later attempt is a trace of its own that points to the producer's: a message that is tried for
    /// a day must not make a trace that lasts for a day.
    LinkedTo(TraceContext),
}

/// The origin of a message by its headers. One that says nothing, or nothing that can be understood,
/// has none: that is never an error.
pub(crate) fn origin(headers: &BTreeMap<String, String>, first_attempt: bool) -> Option<Origin> {
    let context = TraceContext::read(traceparent(headers)?)?;
    Some(if first_attempt {
        Origin::ChildOf(context)
    } else {
        Origin::LinkedTo(context)
    })
}

/// The context of a handler: what the messages carry that it enqueues. A trace of its own is sampled
/// as the one it points to.
pub(crate) fn handling(origin: Origin) -> TraceContext {
    match origin {
        Origin::ChildOf(context) => context.child(),
        Origin::LinkedTo(context) => TraceContext {
            flags: RANDOM | context.flags & SAMPLED,
            ..TraceContext::new_root()
        },
    }
}

impl Store {
    /// What a message carries that is enqueued now.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        producing(self.propagator.as_deref())
    }
}

/// The context of a producer: [`in_trace`] comes first, then the span that the propagator sees, then
/// the message that is being handled.
fn producing(propagator: Option<&dyn Propagator>) -> Option<TraceContext> {
    match held() {
        Some(Held::ByCaller(context)) => Some(context),
        Some(Held::ByHandling(context)) => {
            propagator.and_then(Propagator::current).or(Some(context))
        }
        None => propagator?.current(),
    }
}

/// The headers of a message that is enqueued, with the context of its producer.
#[derive(Serialize)]
pub(crate) struct Headers<'a> {
    #[serde(flatten)]
    given: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<TraceContext>,
}

impl<'a> Headers<'a> {
    /// A header that the caller gave wins, whatever it holds.
    pub(crate) fn new(given: &'a BTreeMap<String, String>, context: Option<TraceContext>) -> Self {
        Self {
            given,
            traceparent: context.filter(|_| traceparent(given).is_none()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.given.is_empty() && self.traceparent.is_none()
    }
}

fn traceparent(headers: &BTreeMap<String, String>) -> Option<&str> {
    headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT))
        .map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    fn context(traceparent: &str) -> TraceContext {
        TraceContext::parse(traceparent).expect("a context")
    }

    fn headers(traceparent: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())])
    }

    #[test]
    fn a_first_attempt_is_a_child_and_a_retry_is_linked() {
        let headers = headers(PRODUCER);
        assert_eq!(
            origin(&headers, true),
            Some(Origin::ChildOf(context(PRODUCER)))
        );
        assert_eq!(
            origin(&headers, false),
            Some(Origin::LinkedTo(context(PRODUCER)))
        );
    }

    #[test]
    fn a_header_that_cannot_be_understood_is_no_origin() {
        assert_eq!(origin(&BTreeMap::new(), true), None);
        for wrong in ["", "canary", "00-0-0-0", &PRODUCER.to_uppercase()] {
            assert_eq!(origin(&headers(wrong), true), None, "{wrong}");
        }
    }

    #[test]
    fn the_header_is_found_in_any_case() {
        let headers = BTreeMap::from([("TraceParent".to_owned(), PRODUCER.to_owned())]);
        assert!(origin(&headers, true).is_some());
        assert_eq!(
            Headers::new(&headers, Some(TraceContext::new_root())).traceparent,
            None
        );
    }

    #[test]
    fn a_handler_goes_on_in_the_trace_of_a_first_attempt_only() {
        let producer = context(PRODUCER);
        let first = handling(Origin::ChildOf(producer));
        assert_eq!(first.trace_id, producer.trace_id);
        assert_ne!(first.span_id, producer.span_id);
        assert_eq!(first.flags, producer.flags);

        let retry = handling(Origin::LinkedTo(producer));
        assert_ne!(retry.trace_id, producer.trace_id);
        assert!(retry.is_sampled());
        assert!(!handling(Origin::LinkedTo(context(UNSAMPLED))).is_sampled());
    }

    struct Sees(Option<TraceContext>);

    impl Propagator for Sees {
        fn current(&self) -> Option<TraceContext> {
            self.0
        }

        fn adopt(&self, _: &tracing::Span, _: Origin) {}
    }

    #[tokio::test]
    async fn the_callers_context_comes_before_the_span_and_the_span_before_the_message() {
        let [caller, span, message] = [(); 3].map(|()| TraceContext::new_root());
        let (blind, seeing) = (Sees(None), Sees(Some(span)));
        let none = async || producing(None);
        let blind = async || producing(Some(&blind));
        let seeing = async || producing(Some(&seeing));

        assert_eq!(none().await, None);
        assert_eq!(blind().await, None);
        assert_eq!(seeing().await, Some(span));
        assert_eq!(in_trace(caller, seeing()).await, Some(caller));
        assert_eq!(scope(message, none()).await, Some(message));
        assert_eq!(scope(message, blind()).await, Some(message));
        assert_eq!(scope(message, seeing()).await, Some(span));
        assert_eq!(
            scope(message, in_trace(caller, seeing())).await,
            Some(caller)
        );
    }

    #[tokio::test]
    async fn a_scope_without_a_context_hides_the_one_around_it() {
        let root = TraceContext::new_root();
        let inside = in_trace(root, scope(None, async { TraceContext::current() })).await;
        assert_eq!(inside, None);
        assert_eq!(
            scope(root, async { TraceContext::current() }).await,
            Some(root)
        );
    }
}
