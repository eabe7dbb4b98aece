//! Finding messages: by state, topic, correlation id, source and age, oldest or newest first, page by
//! page; and dead messages by filter, counted, replayed and purged.

use std::time::Duration;

use postroom::{
    DeadFilter, ErrorKind, Inbound, InboxMessage, InboxMessageId, InboxState, List, Message,
    OutboxMessage, State, WorkItemId,
};
use testkit::{Fixture, LEASE};
use uuid::Uuid;

const HOUR: Duration = Duration::from_secs(3600);
const CENTURIES: Duration = Duration::from_secs(300 * 366 * 86_400);

fn ids(messages: &[OutboxMessage]) -> Vec<WorkItemId> {
    messages.iter().map(|message| message.id).collect()
}

fn names(messages: &[InboxMessage]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| message.id.message_id.as_str())
        .collect()
}

/// One message in each state, oldest first: done, dead, in flight, ready.
async fn one_in_each_state(fixture: &Fixture) -> Vec<WorkItemId> {
    let outbox = fixture.room.outbox();
    let ids = fixture.enqueue(4).await;
    let (owner, claimed) = fixture.claim(3).await;
    assert_eq!(claimed, ids[..3]);
    outbox.ack(owner, &ids[..1]).await.unwrap();
    outbox.fail(owner, &ids[1..2], "no").await.unwrap();
    ids
}

/// An extension: no requirement asks for it.
async fn a_list_of_any_state_holds_every_message_in_order(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let mut expected = one_in_each_state(&fixture).await;
    let listed = outbox.list(&List::any()).await.unwrap();
    assert_eq!(ids(&listed), expected);
    let states: Vec<_> = listed.iter().map(|message| message.state).collect();
    assert_eq!(
        states,
        [State::Done, State::Dead, State::InFlight, State::Ready]
    );
    assert_eq!(outbox.count(&List::any()).await.unwrap(), 4);

    expected.reverse();
    let newest = outbox.list(&List::any().newest_first()).await.unwrap();
    assert_eq!(ids(&newest), expected);
    for message in newest {
        assert_eq!(outbox.get(message.id).await.unwrap(), Some(message));
    }
}

/// An extension: no requirement asks for it.
async fn the_cursor_follows_the_order_of_the_list(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let receipts = outbox
        .enqueue_many(&vec![Message::new("a", ""); 25])
        .await
        .unwrap();
    let mut expected: Vec<_> = receipts.iter().map(|r| r.work_item_id).collect();
    expected.sort();
    let (owner, claimed) = fixture.claim(12).await;
    outbox.ack(owner, &claimed[..6]).await.unwrap();
    outbox.fail(owner, &claimed[6..], "no").await.unwrap();

    for newest_first in [false, true] {
        let mut paged = Vec::new();
        loop {
            let mut list = List::any().limit(7);
            if newest_first {
                list = list.newest_first();
            }
            if let Some(last) = paged.last() {
                list = list.after(*last);
            }
            let page = outbox.list(&list).await.unwrap();
            assert!(page.len() <= 7);
            if page.is_empty() {
                break;
            }
            paged.extend(ids(&page));
        }
        assert_eq!(paged, expected, "newest first: {newest_first}");
        expected.reverse();
    }
}

/// The archive is looked at in steps from the newest on: none of them may lose a message, whatever its
/// age and whoever has chosen its id.
///
/// An extension: no requirement asks for it.
async fn newest_first_finds_messages_of_any_age_and_any_kind_of_id(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let now = u128::from(Uuid::now_v7().get_timestamp().unwrap().to_unix().0) * 1000;
    let aged = |seconds: u128| Uuid::from_u128((now - seconds * 1000) << 80 | 0x7000_8000 << 48);
    let chosen = [
        Uuid::from_u128(7),
        aged(400 * 86_400),
        aged(3 * 86_400),
        aged(7_000),
        aged(120),
        aged(5),
        Uuid::from_u128(0xf000_0000_0000_4000_8000_0000_0000_0000),
    ];
    for id in chosen {
        let message = Message::new("old", "").id(id.into());
        outbox.enqueue(&message).await.unwrap();
    }
    let (owner, claimed) = fixture.claim(10).await;
    outbox.ack(owner, &claimed).await.unwrap();

    let mut expected: Vec<WorkItemId> = chosen.map(WorkItemId::from).to_vec();
    expected.reverse();
    let done = List::new(State::Done).newest_first();
    assert_eq!(ids(&outbox.list(&done).await.unwrap()), expected);
    let mut paged = Vec::new();
    for _ in 0..expected.len() {
        let mut list = done.clone().limit(1);
        if let Some(last) = paged.last() {
            list = list.after(*last);
        }
        paged.extend(ids(&outbox.list(&list).await.unwrap()));
    }
    assert_eq!(paged, expected);
}

/// An extension: no requirement asks for it.
async fn messages_are_found_by_correlation_topic_and_both(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    for (topic, correlation) in [("a", "x"), ("b", "x"), ("a", "y"), ("a", "X")] {
        outbox
            .enqueue(&Message::new(topic, "").correlation(correlation))
            .await
            .unwrap();
    }
    let (owner, claimed) = fixture.claim(1).await;
    outbox.ack(owner, &claimed).await.unwrap();
    let found = async |list: List| {
        let messages = outbox.list(&list).await.unwrap();
        assert_eq!(
            outbox.count(&list).await.unwrap(),
            messages.len() as u64,
            "the count counts what the list lists"
        );
        messages.len()
    };

    assert_eq!(found(List::any().correlation("x")).await, 2);
    assert_eq!(found(List::any().correlation("x").topic("a")).await, 1);
    assert_eq!(
        found(List::new(State::Ready).correlation("x")).await,
        1,
        "one is done"
    );
    assert_eq!(found(List::any().topic("a").newest_first()).await, 3);
    assert_eq!(found(List::any().correlation("z").newest_first()).await, 0);
}

/// An extension: no requirement asks for it.
async fn messages_are_found_by_their_age_by_the_databases_clock(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let all = one_in_each_state(&fixture).await;
    for table in ["outbox", "outbox_dead"] {
        fixture.age(table, "created_at", 2 * HOUR).await;
    }
    let found = async |list: List| ids(&outbox.list(&list).await.unwrap());

    assert_eq!(found(List::any().older_than(HOUR)).await, all[1..]);
    assert_eq!(found(List::any().newer_than(HOUR)).await, all[..1]);
    assert_eq!(
        found(List::any().newer_than(HOUR).newest_first()).await,
        all[..1]
    );
    assert_eq!(
        found(List::any().older_than(HOUR).newer_than(3 * HOUR)).await,
        all[1..]
    );
    assert_eq!(found(List::any().older_than(3 * HOUR)).await, []);
    assert_eq!(
        outbox
            .count(&List::new(State::Dead).older_than(HOUR).limit(1))
            .await
            .unwrap(),
        1
    );
}

/// An extension: no requirement asks for it.
async fn a_bad_list_is_refused_by_the_name_of_its_parameter(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let long = "x".repeat(256);
    let lists: [(List, &str); 8] = [
        (List::any().limit(0), "limit"),
        (List::any().limit(10_001), "limit"),
        (List::any().topic(""), "topic"),
        (List::any().topic(long.as_str()), "topic"),
        (List::any().correlation("a\0b"), "correlation"),
        (List::any().correlation(""), "correlation"),
        (List::any().older_than(CENTURIES), "older_than"),
        (List::any().newer_than(CENTURIES), "newer_than"),
    ];
    for (list, param) in lists {
        assert_eq!(outbox.list(&list).await.unwrap_err().param(), Some(param));
        assert_eq!(outbox.count(&list).await.unwrap_err().param(), Some(param));
    }
    let inbox = fixture.room.inbox();
    let list = List::<InboxState>::any().source("");
    let error = inbox.list(&list).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument { param: "source" });
    let now = fixture.now().await;
    for (first_seen, id) in [
        (now, InboxMessageId::new("", "1")),
        (now, InboxMessageId::new("s", "a\0")),
        (now + CENTURIES * 100, InboxMessageId::new("s", "1")),
    ] {
        let list = List::<InboxState>::any().after_arrival(first_seen, id);
        assert_eq!(inbox.list(&list).await.unwrap_err().param(), Some("after"));
    }
}

/// An extension: no requirement asks for it.
async fn the_inbox_is_searched_by_source_too(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for (source, id) in [("stripe", "1"), ("github", "2"), ("stripe", "3")] {
        inbox
            .enqueue(&Inbound::new(source, id, "hook", "").correlation("c"))
            .await
            .unwrap();
    }
    inbox
        .already_processed(&InboxMessageId::new("stripe", "seen"))
        .await
        .unwrap();
    inbox
        .already_processed(&InboxMessageId::new("github", "other"))
        .await
        .unwrap();
    let owner = postroom::OwnerToken::new();
    let claimed = inbox.claim(owner, LEASE, 1).await.unwrap();
    inbox
        .ack(owner, &[claimed[0].work_item_id.unwrap()])
        .await
        .unwrap();

    let stripe = List::<InboxState>::any().source("stripe");
    let listed = inbox.list(&stripe).await.unwrap();
    assert_eq!(names(&listed), ["seen", "1", "3"]);
    assert_eq!(inbox.count(&stripe).await.unwrap(), 3);
    let newest = inbox.list(&stripe.clone().newest_first()).await.unwrap();
    assert_eq!(names(&newest), ["3", "1", "seen"]);
    let hooks = stripe.clone().topic("hook").correlation("c");
    assert_eq!(
        names(&inbox.list(&hooks).await.unwrap()),
        ["1", "3"],
        "what was only seen has no topic"
    );
    let done = List::new(InboxState::Done).source("stripe");
    assert_eq!(names(&inbox.list(&done).await.unwrap()), ["1"]);
    assert_eq!(
        names(&inbox.list(&stripe.older_than(HOUR)).await.unwrap()),
        Vec::<&str>::new()
    );
}

/// What was never enqueued comes at the end of a list that starts with the newest, so that paging by
/// work item reaches everything.
///
/// An extension: no requirement asks for it.
async fn paging_from_the_newest_ends_with_what_was_never_enqueued(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for id in ["1", "2", "3"] {
        inbox
            .enqueue(&Inbound::new("s", id, "hook", ""))
            .await
            .unwrap();
    }
    inbox
        .already_processed(&InboxMessageId::new("s", "seen"))
        .await
        .unwrap();

    let list = List::<InboxState>::any().newest_first().limit(2);
    let first = inbox.list(&list).await.unwrap();
    assert_eq!(names(&first), ["3", "2"]);
    let second = inbox
        .list(&list.after(first[1].work_item_id.unwrap()))
        .await
        .unwrap();
    assert_eq!(names(&second), ["1", "seen"]);
}

/// Messages that were never enqueued have no id to go on after, and may have arrived at the same moment.
///
/// An extension: no requirement asks for it.
async fn what_was_never_enqueued_is_paged_through_like_the_rest(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let mut arrived = Vec::new();
    for (source, id) in [("a", "1"), ("b", "1"), ("b", "Z:%"), ("a", "ä"), ("c", " ")] {
        arrived.push(InboxMessageId::new(source, id));
    }
    for id in &arrived {
        inbox.already_processed(id).await.unwrap();
    }
    fixture
        .sql(
            "UPDATE {inbox_seen} SET first_seen = \
             (SELECT f FROM (SELECT min(first_seen) AS f FROM {inbox_seen}) AS first)",
        )
        .await;
    for (id, is_done) in [("done", true), ("processing", false)] {
        let id = InboxMessageId::new("later", id);
        inbox.already_processed(&id).await.unwrap();
        if is_done {
            inbox.mark_processed(&id).await.unwrap();
        } else {
            inbox.mark_processing(&id).await.unwrap();
        }
    }
    for id in ["1", "2", "3"] {
        inbox
            .enqueue(&Inbound::new("queued", id, "hook", ""))
            .await
            .unwrap();
    }

    let walk = |list: List<InboxState>| {
        let inbox = inbox.clone();
        async move {
            let mut met: Vec<InboxMessage> = Vec::new();
            loop {
                let list = match met.last() {
                    Some(last) => list.clone().after_message(last),
                    None => list.clone(),
                };
                let page = inbox.list(&list).await.unwrap();
                met.extend(page.clone());
                if page.len() < 2 {
                    break met.into_iter().map(|message| message.id).collect();
                }
                assert!(met.len() < 100, "the walk does not end");
            }
        }
    };
    let oldest: Vec<InboxMessageId> = walk(List::any().limit(2)).await;
    let mut newest: Vec<InboxMessageId> = walk(List::any().newest_first().limit(2)).await;
    newest.reverse();
    assert_eq!(oldest, newest);
    let sources: Vec<&str> = oldest.iter().map(|id| id.source.as_str()).collect();
    assert_eq!(sources[5..7], ["later", "later"]);
    assert_eq!(sources[7..], ["queued", "queued", "queued"]);
    let seen: Vec<InboxMessageId> = walk(List::new(InboxState::Seen).limit(2)).await;
    assert_eq!(seen, oldest[..5]);
    let mut each = seen.clone();
    each.sort_by_key(|id| (id.source.clone(), id.message_id.clone()));
    arrived.sort_by_key(|id| (id.source.clone(), id.message_id.clone()));
    assert_eq!(each, arrived, "each on one page");
}

/// Two topics of dead messages, some of which died long ago.
async fn dead_messages(fixture: &Fixture) -> Vec<WorkItemId> {
    let outbox = fixture.room.outbox();
    for topic in ["a", "b", "a", "b"] {
        outbox
            .enqueue(&Message::new(topic, "").correlation(topic))
            .await
            .unwrap();
    }
    let (owner, ids) = fixture.claim(4).await;
    outbox.fail(owner, &ids[..2], "no").await.unwrap();
    fixture.age("outbox_dead", "processed_at", 2 * HOUR).await;
    outbox.fail(owner, &ids[2..], "no").await.unwrap();
    ids
}

/// An extension: no requirement asks for it.
async fn a_dry_run_counts_what_the_replay_replays(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let ids = dead_messages(&fixture).await;
    let count = async |filter: DeadFilter| outbox.count_dead(&filter).await.unwrap();

    assert_eq!(count(DeadFilter::all()).await, 4);
    assert_eq!(count(DeadFilter::all().topic("a")).await, 2);
    assert_eq!(count(DeadFilter::all().correlation("b")).await, 2);
    assert_eq!(count(DeadFilter::all().older_than(HOUR)).await, 2);
    assert_eq!(count(DeadFilter::all().older_than(3 * HOUR)).await, 0);

    let which = DeadFilter::all().topic("a").older_than(HOUR);
    assert_eq!(count(which.clone()).await, 1);
    assert_eq!(outbox.replay_matching(&which).await.unwrap(), 1);
    assert_eq!(count(which).await, 0);
    let ready = outbox.list(&List::new(State::Ready)).await.unwrap();
    assert_eq!(self::ids(&ready), ids[..1]);
    assert_eq!(ready[0].progress.attempt_count, 0);
    assert_eq!(outbox.replay_matching(&DeadFilter::all()).await.unwrap(), 3);
    assert_eq!(outbox.counts().await.unwrap().ready, 4);
}

/// An extension: no requirement asks for it.
async fn a_purge_by_filter_deletes_what_the_dry_run_counts(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let ids = dead_messages(&fixture).await;

    let which = DeadFilter::all().topic("b").older_than(HOUR);
    assert_eq!(outbox.count_dead(&which).await.unwrap(), 1);
    assert_eq!(outbox.purge_matching(&which).await.unwrap(), 1);
    assert_eq!(outbox.get(ids[1]).await.unwrap(), None);
    assert_eq!(outbox.counts().await.unwrap().dead, 3);
    assert_eq!(outbox.purge_matching(&DeadFilter::all()).await.unwrap(), 3);
    assert_eq!(outbox.counts().await.unwrap().dead, 0);
}

/// A message that dies again while others are still replayed must not go round in circles, and one that
/// cannot be replayed must not hold up the rest.
///
/// An extension: no requirement asks for it.
async fn a_replay_of_many_takes_each_message_once(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let messages = vec![Message::new("a", ""); 1_203];
    outbox.enqueue_many(&messages).await.unwrap();
    let (owner, ids) = fixture.claim(messages.len()).await;
    outbox.fail(owner, &ids, "no").await.unwrap();
    // The same id is live again: its dead row stays.
    let again = Message::new("a", "").id(ids[0]);
    outbox.enqueue(&again).await.unwrap();

    let replayed = outbox.replay_matching(&DeadFilter::all()).await.unwrap();
    assert_eq!(replayed, 1_202);
    let counts = outbox.counts().await.unwrap();
    assert_eq!((counts.ready, counts.dead), (1_203, 1));
}

/// An extension: no requirement asks for it.
async fn dead_arrivals_are_revived_and_purged_by_filter(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for (source, id) in [("stripe", "1"), ("stripe", "2"), ("github", "3")] {
        inbox
            .enqueue(&Inbound::new(source, id, "hook", ""))
            .await
            .unwrap();
        inbox
            .mark_dead(&InboxMessageId::new(source, id))
            .await
            .unwrap();
    }
    let stripe = DeadFilter::all().source("stripe");
    assert_eq!(inbox.count_dead(&stripe).await.unwrap(), 2);
    assert_eq!(inbox.revive_matching(&stripe).await.unwrap(), 2);
    assert_eq!(inbox.counts().await.unwrap().processing, 2);
    let hooks = DeadFilter::all().topic("hook");
    assert_eq!(inbox.purge_matching(&hooks).await.unwrap(), 1);
    assert_eq!(inbox.counts().await.unwrap().dead, 0);
    assert_eq!(
        inbox
            .get(&InboxMessageId::new("github", "3"))
            .await
            .unwrap(),
        None,
        "a purge forgets the arrival"
    );
}

/// An extension: no requirement asks for it.
async fn a_bad_filter_is_refused_and_changes_nothing(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    dead_messages(&fixture).await;
    for (filter, param) in [
        (DeadFilter::all().topic(""), "topic"),
        (DeadFilter::all().correlation("\0"), "correlation"),
        (DeadFilter::all().source("stripe"), "source"),
        (DeadFilter::all().older_than(CENTURIES), "older_than"),
    ] {
        for error in [
            outbox.count_dead(&filter).await.unwrap_err(),
            outbox.replay_matching(&filter).await.unwrap_err(),
            outbox.purge_matching(&filter).await.unwrap_err(),
        ] {
            assert_eq!(error.param(), Some(param));
        }
    }
    assert_eq!(outbox.counts().await.unwrap().dead, 4);
}

testkit::mount!(
    a_list_of_any_state_holds_every_message_in_order,
    the_cursor_follows_the_order_of_the_list,
    newest_first_finds_messages_of_any_age_and_any_kind_of_id,
    messages_are_found_by_correlation_topic_and_both,
    messages_are_found_by_their_age_by_the_databases_clock,
    a_bad_list_is_refused_by_the_name_of_its_parameter,
    the_inbox_is_searched_by_source_too,
    paging_from_the_newest_ends_with_what_was_never_enqueued,
    what_was_never_enqueued_is_paged_through_like_the_rest,
    a_dry_run_counts_what_the_replay_replays,
    a_purge_by_filter_deletes_what_the_dry_run_counts,
    a_replay_of_many_takes_each_message_once,
    dead_arrivals_are_revived_and_purged_by_filter,
    a_bad_filter_is_refused_and_changes_nothing,
);
