//! Which messages to list or count, and which dead ones to replay or purge.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use crate::error::{Error, ErrorKind};
use crate::id::{InboxMessageId, WorkItemId};
use crate::message::{
    InboxMessage, InboxState, NAME_LIMIT, State, check_micros, check_name, micros,
};
use crate::sql::{Dialect, Queue, Row, Value};
use crate::store::{Store, duration_micros};

/// What to list: messages in one state or in any, oldest first or newest first.
///
/// The order is that of the ids. Ids are UUIDs of version 7, so it is about the order in which messages
/// were enqueued, unless somebody chose ids of another kind. Messages of the inbox that were never
/// enqueued have no id: they come before the oldest of the others, in the order in which they arrived.
///
/// ```
/// use std::time::Duration;
/// use postroom::{List, State};
///
/// let dead = List::new(State::Dead).topic("order.created").limit(20);
/// let request: List = List::any().correlation("req-42").newest_first();
/// let stale = List::new(State::Ready).older_than(Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone)]
pub struct List<S = State> {
    state: Option<S>,
    place: Place,
}

/// What a list is about, apart from states, and where it begins and ends.
#[derive(Debug, Clone)]
struct Place {
    topic: Option<String>,
    correlation: Option<String>,
    source: Option<String>,
    older_than: Option<Duration>,
    newer_than: Option<Duration>,
    newest_first: bool,
    after: Option<After>,
    limit: i64,
}

/// The last message of the page before.
#[derive(Debug, Clone)]
enum After {
    Item(WorkItemId),
    /// Of one that was never enqueued: when it first arrived, and its key.
    Arrival(i64, InboxMessageId),
}

impl<S> List<S> {
    /// The first 100 messages in this state.
    pub fn new(state: S) -> Self {
        Self {
            state: Some(state),
            ..Self::any()
        }
    }

    /// The first 100 messages, in whatever state they are.
    #[must_use]
    pub fn any() -> Self {
        Self {
            state: None,
            place: Place {
                topic: None,
                correlation: None,
                source: None,
                older_than: None,
                newer_than: None,
                newest_first: false,
                after: None,
                limit: 100,
            },
        }
    }

    /// Only this topic.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.place.topic = Some(topic.into());
        self
    }

    /// Only messages with this correlation id. No index helps: unfinished and dead messages are looked at
    /// one by one, and so is the archive, from the newest on with [`List::newest_first`].
    #[must_use]
    pub fn correlation(mut self, id: impl ToString) -> Self {
        self.place.correlation = Some(id.to_string());
        self
    }

    /// Only messages that were enqueued at least so long ago, by the database's clock.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        self.place.older_than = Some(age);
        self
    }

    /// Only messages that were enqueued less than so long ago, by the database's clock.
    #[must_use]
    pub fn newer_than(mut self, age: Duration) -> Self {
        self.place.newer_than = Some(age);
        self
    }

    /// The newest comes first, instead of the oldest.
    #[must_use]
    pub fn newest_first(mut self) -> Self {
        self.place.newest_first = true;
        self
    }

    /// Only what comes after this one, in the order of the list: to page on, give the last id of a page.
    #[must_use]
    pub fn after(mut self, id: WorkItemId) -> Self {
        self.place.after = Some(After::Item(id));
        self
    }

    /// At most so many, 1 to 10,000.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.place.limit = limit.into();
        self
    }

    fn of(&self, queue: Queue, codes: fn(Option<&S>) -> &'static [i64]) -> Listing<'_> {
        Listing {
            queue,
            codes: codes(self.state.as_ref()),
            place: &self.place,
        }
    }
}

impl List<InboxState> {
    /// Only messages of this source.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.place.source = Some(source.into());
        self
    }

    /// Only what comes after this message: to page on, give the last one of a page.
    ///
    /// ```no_run
    /// # async fn example(inbox: postroom::Inbox) -> Result<(), postroom::Error> {
    /// use postroom::{InboxState, List};
    ///
    /// let mut list = List::<InboxState>::any().limit(500);
    /// loop {
    ///     let page = inbox.list(&list).await?;
    ///     let Some(last) = page.last() else { break };
    ///     list = list.after_message(last);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn after_message(self, message: &InboxMessage) -> Self {
        match message.work_item_id {
            Some(id) => self.after(id),
            None => self.after_arrival(message.first_seen, message.id.clone()),
        }
    }

    /// The same for a message that was never enqueued, by when it first arrived and what it is: for those
    /// who no longer have the message itself.
    #[must_use]
    pub fn after_arrival(mut self, first_seen: SystemTime, id: InboxMessageId) -> Self {
        self.place.after = Some(After::Arrival(micros(first_seen), id));
        self
    }
}

impl List<State> {
    pub(crate) fn listing(&self) -> Listing<'_> {
        self.of(Queue::Outbox, |state| match state {
            None => &[0, 1, DONE, 3],
            Some(State::Ready) => &[0],
            Some(State::InFlight) => &[1],
            Some(State::Done) => &[DONE],
            Some(State::Dead) => &[3],
        })
    }
}

impl List<InboxState> {
    pub(crate) fn listing(&self) -> Listing<'_> {
        self.of(Queue::Inbox, |state| match state {
            None => &[0, 1, DONE, 3, 4, 5],
            Some(InboxState::Seen) => &[4],
            Some(InboxState::Processing) => &[0, 1, 5],
            Some(InboxState::Done) => &[DONE],
            Some(InboxState::Dead) => &[3],
        })
    }
}

/// The status code of done messages.
const DONE: i64 = 2;

/// A list of one queue, as its statements know it.
pub(crate) struct Listing<'a> {
    queue: Queue,
    /// The status codes of the states.
    codes: &'static [i64],
    place: &'a Place,
}

impl Listing<'_> {
    /// The rows of the page, in its order.
    pub(crate) async fn rows(&self, store: &Store) -> Result<Vec<Row>, Error> {
        let filter = self.filter()?;
        let (name, sql, _) = store.queue(self.queue);
        let script = if self.place.newest_first {
            &sql.list_newest
        } else {
            &sql.list
        };
        let mut rows = Vec::new();
        for span in self.spans(store.dialect()) {
            let room = self.place.limit - i64::try_from(rows.len()).unwrap_or(i64::MAX);
            let mut values = filter.clone();
            values.extend(span.bounds());
            if self.queue == Queue::Inbox {
                values.push(self.place.source.clone().into());
            }
            values.push(room.into());
            if self.queue == Queue::Inbox {
                values.push(i64::from(span.with_unqueued).into());
                values.extend(self.arrival());
            }
            rows.extend(store.read("list", name, script.call(values)).await?);
            if i64::try_from(rows.len()).unwrap_or(i64::MAX) >= self.place.limit {
                break;
            }
        }
        Ok(rows)
    }

    /// How many messages the list is about, over all of its pages.
    pub(crate) async fn count(&self, store: &Store) -> Result<u64, Error> {
        let mut values = self.filter()?;
        let everything = Span {
            from: 0,
            to: u128::MAX,
            with_unqueued: true,
        };
        values.extend(everything.bounds());
        if self.queue == Queue::Inbox {
            values.push(self.place.source.clone().into());
        }
        let (name, sql, _) = store.queue(self.queue);
        one_count(
            store
                .read("count", name, sql.list_count.call(values))
                .await?,
        )
    }

    /// After which of the messages without an id the list goes on.
    fn arrival(&self) -> [Value; 3] {
        let after = match &self.place.after {
            Some(After::Arrival(first_seen, id)) => Some((*first_seen, id)),
            Some(After::Item(_)) | None => None,
        };
        [
            after.map(|(first_seen, _)| first_seen).into(),
            after.map(|(_, id)| id.source.clone()).into(),
            after.map(|(_, id)| id.message_id.clone()).into(),
        ]
    }

    /// Everything but the place in the list, checked.
    fn filter(&self) -> Result<Vec<Value>, Error> {
        if !(1..=10_000).contains(&self.place.limit) {
            return Err(ErrorKind::OutOfRange { param: "limit" }.with("expected 1 to 10000"));
        }
        check_filter_name("topic", self.place.topic.as_deref())?;
        check_filter_name("correlation", self.place.correlation.as_deref())?;
        check_filter_name("source", self.place.source.as_deref())?;
        if let Some(After::Arrival(first_seen, id)) = &self.place.after {
            check_filter_name("after", Some(&id.source))?;
            check_filter_name("after", Some(&id.message_id))?;
            check_micros("after", *first_seen)?;
        }
        Ok(vec![
            Value::Ints(self.codes.iter().copied().map(Some).collect()),
            self.place.topic.clone().into(),
            self.place.correlation.clone().into(),
            age_micros("older_than", self.place.older_than)?.into(),
            age_micros("newer_than", self.place.newer_than)?.into(),
        ])
    }

    /// Where to look, one after the other, until the page is full. PostgreSQL's archive has no index that
    /// could give the newest ids in order, but one that knows roughly where a range of ids is: so the
    /// last minute is asked for first, then the last hour, the last day, and then everything.
    fn spans(&self, dialect: Dialect) -> Vec<Span> {
        let after = match &self.place.after {
            None => None,
            Some(After::Item(id)) => Some(id.as_uuid().as_u128()),
            Some(After::Arrival(..)) if self.place.newest_first => return vec![Span::UNQUEUED],
            Some(After::Arrival(..)) => None,
        };
        if !self.place.newest_first {
            let from = match after {
                None => Some(0),
                Some(after) => after.checked_add(1),
            };
            let span = from.map(|from| Span {
                from,
                to: u128::MAX,
                with_unqueued: after.is_none(),
            });
            return span.into_iter().collect();
        }
        let newest = match after {
            None => Some(u128::MAX),
            Some(after) => after.checked_sub(1),
        };
        let Some(mut to) = newest else {
            return Vec::new();
        };
        let start = after.map_or_else(millis_now, |after| after >> 80);
        let looks_into_archive = self.codes.contains(&DONE);
        let mut spans = Vec::new();
        if dialect == Dialect::Postgres && looks_into_archive {
            for age in NEWEST_SPANS {
                let from = start.saturating_sub(age.as_millis()) << 80;
                if from == 0 || from > to {
                    break;
                }
                spans.push(Span {
                    from,
                    to,
                    with_unqueued: false,
                });
                to = from - 1;
            }
        }
        spans.push(Span {
            from: 0,
            to,
            with_unqueued: true,
        });
        spans
    }
}

/// How far back the archive is looked at before all of it is.
const NEWEST_SPANS: [Duration; 3] = [
    Duration::from_secs(60),
    Duration::from_secs(3600),
    Duration::from_secs(24 * 3600),
];

/// A range of ids, both ends included.
#[derive(Debug, PartialEq, Eq)]
struct Span {
    from: u128,
    to: u128,
    /// Whether inbox messages that were never enqueued, and so have no id, belong here.
    with_unqueued: bool,
}

impl Span {
    /// No id, and all that have none.
    const UNQUEUED: Self = Self {
        from: u128::MAX,
        to: 0,
        with_unqueued: true,
    };

    fn bounds(&self) -> [Value; 2] {
        [
            Uuid::from_u128(self.from).into(),
            Uuid::from_u128(self.to).into(),
        ]
    }
}

/// Where the newest ids are. It is a guess at where to look first, and decides nothing.
fn millis_now() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis())
}

/// Which dead messages to count, replay or purge. A dry run and the real one pick the same messages.
///
/// ```no_run
/// # async fn example(room: postroom::Postroom) -> Result<(), postroom::Error> {
/// use std::time::Duration;
/// use postroom::DeadFilter;
///
/// let which = DeadFilter::all().topic("order.created").older_than(Duration::from_secs(3600));
/// println!("{} messages would be replayed", room.outbox().count_dead(&which).await?);
/// room.outbox().replay_matching(&which).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadFilter {
    topic: Option<String>,
    correlation: Option<String>,
    source: Option<String>,
    older_than: Duration,
}

impl DeadFilter {
    /// Every dead message.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Only this topic.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Only messages with this correlation id.
    #[must_use]
    pub fn correlation(mut self, id: impl ToString) -> Self {
        self.correlation = Some(id.to_string());
        self
    }

    /// Only messages of this source. The outbox has no sources, and refuses it.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Only messages that have been dead for so long, by the database's clock; zero means all.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = age;
        self
    }

    /// How many dead messages there are of this kind.
    pub(crate) async fn count(&self, store: &Store, queue: Queue) -> Result<u64, Error> {
        let matching = Matching::now(self, store, queue).await?;
        let (name, sql, _) = store.queue(queue);
        let call = sql.count_dead.call(matching.values);
        one_count(store.read("count", name, call).await?)
    }
}

/// Dead messages that match a filter, found batch by batch in the order of their ids. What dies while
/// they are worked off is not among them: it died too late.
pub(crate) struct Matching {
    values: Vec<Value>,
    after: Uuid,
    queue: Queue,
}

impl Matching {
    /// Small enough that a batch is a short transaction.
    const BATCH: i64 = 500;

    /// What matches by the database's clock now.
    pub(crate) async fn now(
        filter: &DeadFilter,
        store: &Store,
        queue: Queue,
    ) -> Result<Self, Error> {
        check_filter_name("topic", filter.topic.as_deref())?;
        check_filter_name("correlation", filter.correlation.as_deref())?;
        check_filter_name("source", filter.source.as_deref())?;
        if queue == Queue::Outbox && filter.source.is_some() {
            return Err(ErrorKind::InvalidArgument { param: "source" }
                .with("messages of the outbox have no source; leave it out"));
        }
        let age = duration_micros("older_than", filter.older_than)?;
        let died_before = store.clock().await? - age;
        let mut values = vec![
            filter.topic.clone().into(),
            filter.correlation.clone().into(),
            died_before.into(),
        ];
        if queue == Queue::Inbox {
            values.push(filter.source.clone().into());
        }
        Ok(Self {
            values,
            after: Uuid::nil(),
            queue,
        })
    }

    /// The ids of the next batch; none when all were given out.
    pub(crate) async fn next(&mut self, store: &Store) -> Result<Vec<Uuid>, Error> {
        let (name, sql, _) = store.queue(self.queue);
        let mut values = self.values.clone();
        values.extend([self.after.into(), Self::BATCH.into()]);
        let rows = store
            .read("list", name, sql.match_dead.call(values))
            .await?;
        let ids: Vec<Uuid> = rows
            .into_iter()
            .map(|mut row| row.uuid())
            .collect::<Result<_, _>>()?;
        if let Some(last) = ids.last() {
            self.after = *last;
        }
        Ok(ids)
    }
}

/// A filter that is given must name something: the empty text would quietly mean nothing or everything.
fn check_filter_name(param: &'static str, name: Option<&str>) -> Result<(), Error> {
    name.map_or(Ok(()), |name| check_name(param, name, NAME_LIMIT))
}

fn age_micros(param: &'static str, age: Option<Duration>) -> Result<Option<i64>, Error> {
    age.map(|age| duration_micros(param, age)).transpose()
}

fn one_count(mut rows: Vec<Row>) -> Result<u64, Error> {
    rows.pop()
        .ok_or_else(|| ErrorKind::Schema.with("a count returned no row"))?
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v7(millis: u128) -> WorkItemId {
        Uuid::from_u128(millis << 80 | 0x7000_8000_0000_0000_0000).into()
    }

    #[test]
    fn spans_cover_every_id_once_and_none_beyond_the_cursor() {
        for after in [None, Some(v7(1_800_000_000_000)), Some(v7(1)), Some(v7(0))] {
            let mut list: List = List::any().newest_first();
            list.place.after = after.map(After::Item);
            let spans = list.listing().spans(Dialect::Postgres);
            let top = after.map_or(u128::MAX, |id| id.as_uuid().as_u128() - 1);
            assert_eq!(spans.first().map(|span| span.to), Some(top));
            assert_eq!(spans.last().map(|span| span.from), Some(0));
            assert!(spans.iter().all(|span| span.from <= span.to));
            for pair in spans.windows(2) {
                assert_eq!(pair[1].to, pair[0].from - 1);
            }
        }
    }

    #[test]
    fn only_the_archive_of_postgres_is_looked_at_in_spans() {
        let dead = List::new(State::Dead).newest_first();
        assert_eq!(dead.listing().spans(Dialect::Postgres).len(), 1);
        let any: List = List::any().newest_first();
        assert_eq!(any.listing().spans(Dialect::Sqlite).len(), 1);
        assert_eq!(any.listing().spans(Dialect::Postgres).len(), 4);
    }

    #[test]
    fn nothing_comes_after_the_last_id() {
        let last: WorkItemId = Uuid::max().into();
        let list: List = List::any().after(last);
        assert!(list.listing().spans(Dialect::Postgres).is_empty());
        let first: WorkItemId = Uuid::nil().into();
        let list: List = List::any().newest_first().after(first);
        assert!(list.listing().spans(Dialect::Sqlite).is_empty());
    }
}
