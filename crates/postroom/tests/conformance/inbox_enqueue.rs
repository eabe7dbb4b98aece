//! Taking messages into the inbox.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postroom::{
    Abandon, Accepted, Arrival, ErrorKind, Inbound, Inbox, InboxMessage, InboxMessageId,
    InboxState, List, OwnerToken, tx,
};
use testkit::{Backend, Fixture, eventually};

const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// Shows IBX-013, IBX-036.
async fn an_enqueued_message_is_there_whole_for_a_store_opened_later(fixture: Fixture) {
    let inbound = Inbound::new("stripe", "evt_1", "payment.received", r#"{"amount":100}"#)
        .hash(*b"hash")
        .correlation("req-7")
        .header("content-type", "application/json");
    let accepted = fixture.room.inbox().enqueue(&inbound).await.unwrap();
    assert_eq!(
        accepted,
        Accepted {
            arrival: Arrival::New,
            hash_differs: false
        }
    );

    let later = fixture.again().await.inbox();
    let claimed = later.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let message = &claimed[0];
    assert_eq!(message.id, id("evt_1"));
    assert_eq!(message.topic.as_deref(), Some("payment.received"));
    assert_eq!(message.payload.as_deref(), Some(r#"{"amount":100}"#));
    assert_eq!(message.hash.as_deref(), Some(&b"hash"[..]));
    assert_eq!(message.correlation_id.as_deref(), Some("req-7"));
    assert_eq!(message.headers["content-type"], "application/json");
    assert_eq!(message.due_time, None);
}

/// Shows IBX-027.
async fn a_new_message_is_processing_and_was_never_attempted(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox.enqueue(&inbound("evt_1")).await.unwrap();

    let message = get(&inbox, "evt_1").await;
    assert_eq!(message.state, InboxState::Processing);
    assert_eq!(message.progress.attempt_count, 0);
    assert_eq!(message.progress.delivery_count, 0);
    assert_eq!(message.progress.owner_token, None);
    assert_eq!(message.progress.locked_until, None);
    let row = "SELECT count(*) FROM {inbox} WHERE attempt_count = 0 AND owner_token IS NULL AND locked_until IS NULL";
    assert_eq!(fixture.number(row).await, 1);
}

/// Shows IBX-014, IBX-105.
async fn one_message_enqueued_by_32_tasks_is_new_once(fixture: Fixture) {
    let rooms = [fixture.room.clone(), fixture.again().await];
    for round in 0..5 {
        let name = format!("evt_{round}");
        let enqueues: Vec<_> = (0..32)
            .map(|task| {
                let (inbox, inbound) = (rooms[task % 2].inbox(), inbound(&name));
                tokio::spawn(async move { inbox.enqueue(&inbound).await })
            })
            .collect();
        let mut arrivals = Vec::new();
        for enqueue in enqueues {
            arrivals.push(enqueue.await.unwrap().unwrap().arrival);
        }
        assert_eq!(
            arrivals
                .iter()
                .filter(|arrival| **arrival == Arrival::New)
                .count(),
            1
        );
        assert_eq!(
            arrivals
                .iter()
                .filter(|arrival| **arrival == Arrival::Replaced)
                .count(),
            31
        );
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox}").await, 5);
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_seen}").await, 5);
}

/// Shows IBX-006, IBX-014.
async fn checks_and_enqueues_of_one_message_at_once_make_one_message(fixture: Fixture) {
    let rooms = [fixture.room.clone(), fixture.again().await];
    let calls: Vec<_> = (0..32)
        .map(|task| {
            let inbox = rooms[task % 2].inbox();
            tokio::spawn(async move {
                if task % 4 < 2 {
                    assert!(!inbox.already_processed(&id("evt_1")).await.unwrap());
                    None
                } else {
                    Some(inbox.enqueue(&inbound("evt_1")).await.unwrap().arrival)
                }
            })
        })
        .collect();
    let mut new = 0;
    for call in calls {
        new += usize::from(call.await.unwrap() == Some(Arrival::New));
    }
    assert_eq!(new, 1);
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox}").await, 1);
}

/// Shows IBX-014.
async fn an_enqueue_says_what_the_message_was_before(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox.already_processed(&id("seen")).await.unwrap();
    inbox.already_processed(&id("marked")).await.unwrap();
    inbox.mark_processing(&id("marked")).await.unwrap();
    inbox.enqueue(&inbound("queued")).await.unwrap();
    settle(&inbox, "done", |inbox, owner, id| async move {
        inbox.ack(owner, &[id]).await.unwrap()
    })
    .await;
    settle(&inbox, "dead", |inbox, owner, id| async move {
        inbox.fail(owner, &[id], "no").await.unwrap()
    })
    .await;

    for (name, arrival) in [
        ("unknown", Arrival::New),
        ("seen", Arrival::New),
        ("marked", Arrival::New),
        ("queued", Arrival::Replaced),
        ("done", Arrival::AlreadyDone),
        ("dead", Arrival::Dead),
    ] {
        assert_eq!(
            inbox.enqueue(&inbound(name)).await.unwrap().arrival,
            arrival,
            "{name}"
        );
    }
}

/// Shows IBX-015, IBX-016, IBX-017.
async fn an_empty_topic_source_or_message_id_is_refused(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for (source, id, topic, param) in [
        ("stripe", "evt", "", "topic"),
        ("", "evt", "topic", "source"),
        ("stripe", "", "topic", "message_id"),
    ] {
        let error = inbox
            .enqueue(&Inbound::new(source, id, topic, "{}"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument { param });
    }
    assert_nothing_written(&fixture).await;
}

/// A payload is a `String`, which cannot be null; the table says the same to everybody else.
///
/// Shows IBX-018, C-55.
async fn a_queued_message_cannot_be_without_a_payload(fixture: Fixture) {
    let in_schema = |schema: &str| {
        format!(
            "SELECT count(*) FROM information_schema.columns WHERE table_schema = {schema} \
             AND table_name = 'inbox' AND column_name = 'payload' AND is_nullable = 'NO'"
        )
    };
    let not_null = match (fixture.backend, &fixture.schema) {
        (Backend::MySql, _) => in_schema("DATABASE()"),
        (_, Some(schema)) => in_schema(&format!("'{schema}'")),
        (_, None) => {
            "SELECT \"notnull\" FROM pragma_table_info('inbox') WHERE name = 'payload'".to_owned()
        }
    };
    assert_eq!(fixture.number(&not_null).await, 1);
}

/// Shows IBX-019.
async fn an_empty_payload_is_a_payload(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox
        .enqueue(&Inbound::new("stripe", "evt_1", "topic", ""))
        .await
        .unwrap();
    let claimed = inbox.claim(OwnerToken::new(), LEASE, 1).await.unwrap();
    assert_eq!(claimed[0].payload.as_deref(), Some(""));
}

/// Shows IBX-011, IBX-012, IBX-020, C-56.
async fn names_of_255_characters_fit_and_longer_ones_are_refused(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (fits, long) = ("é".repeat(255), "é".repeat(256));
    for (source, id, topic, param) in [
        ("stripe", "evt", &*long, "topic"),
        (&*long, "evt", "topic", "source"),
        ("stripe", &*long, "topic", "message_id"),
    ] {
        let error = inbox
            .enqueue(&Inbound::new(source, id, topic, "{}"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument { param });
    }
    assert_nothing_written(&fixture).await;

    inbox
        .enqueue(&Inbound::new(&fits, &fits, &fits, "{}"))
        .await
        .unwrap();
    let claimed = inbox.claim(OwnerToken::new(), LEASE, 1).await.unwrap();
    assert_eq!(claimed[0].topic.as_deref(), Some(&*fits));
    assert_eq!(claimed[0].id, InboxMessageId::new(&fits, &fits));
}

/// Shows C-56.
async fn a_nul_character_is_refused_wherever_it_stands(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for (inbound, param) in [
        (Inbound::new("a\0", "b", "c", "d"), "source"),
        (Inbound::new("a", "b\0", "c", "d"), "message_id"),
        (Inbound::new("a", "b", "c\0", "d"), "topic"),
        (Inbound::new("a", "b", "c", "d\0"), "payload"),
        (inbound("b").correlation("\0"), "correlation_id"),
        (inbound("b").header("name", "\0"), "headers"),
    ] {
        let error = inbox.enqueue(&inbound).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument { param });
    }
    assert_nothing_written(&fixture).await;
}

/// Shows IBX-021.
async fn topics_that_differ_in_case_or_spaces_are_different_topics(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let topics = [
        "Order.Created",
        "order.created",
        "order.created ",
        " order.created",
        "order.creatéd",
    ];
    for topic in topics {
        inbox
            .enqueue(&Inbound::new("stripe", topic, topic, ""))
            .await
            .unwrap();
    }
    for topic in topics {
        let listed = inbox
            .list(&List::new(InboxState::Processing).topic(topic))
            .await
            .unwrap();
        let found: Vec<_> = listed
            .iter()
            .map(|message| message.topic.as_deref())
            .collect();
        assert_eq!(found, [Some(topic)]);
    }
}

/// Shows IBX-022.
async fn a_payload_comes_back_as_it_went_in_whatever_it_is(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let payloads = [
        "{not json",
        " ",
        "\r\n\t",
        "null",
        "\u{1}\u{7f}\u{feff}",
        "🦀 e\u{301} ß",
        r#"' " \ $1 ?1 {inbox} %s"#,
        "<xml/>",
    ];
    for (number, payload) in payloads.iter().enumerate() {
        inbox
            .enqueue(&Inbound::new(
                "stripe",
                number.to_string(),
                "topic",
                *payload,
            ))
            .await
            .unwrap();
    }
    let claimed = inbox.claim(OwnerToken::new(), LEASE, 50).await.unwrap();
    assert_eq!(claimed.len(), payloads.len());
    for message in claimed {
        let number: usize = message.id.message_id.parse().unwrap();
        assert_eq!(message.payload.as_deref(), Some(payloads[number]));
    }
}

/// Shows IBX-118.
async fn a_payload_of_many_megabytes_is_taken_in(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let payload = "0123456789abcdef".repeat(1024 * 1024);
    inbox
        .enqueue(&Inbound::new("stripe", "evt_1", "topic", &payload))
        .await
        .unwrap();
    let claimed = inbox.claim(OwnerToken::new(), LEASE, 1).await.unwrap();
    assert!(claimed[0].payload.as_ref() == Some(&payload));
}

/// Shows IBX-023, IBX-032.
async fn a_message_due_later_is_held_back_until_its_time_has_come(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let due = fixture.now().await + Duration::from_millis(700);
    inbox.enqueue(&inbound("soon").due_at(due)).await.unwrap();
    inbox
        .enqueue(&inbound("much later").due_at(due + HOUR))
        .await
        .unwrap();
    assert_eq!(
        get(&inbox, "soon").await.due_time.map(millis),
        Some(millis(due))
    );

    let (inbox, fixture) = (&inbox, &fixture);
    let claimed = eventually(|| async move {
        let before = fixture.now().await;
        let claimed = inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
        assert!(
            claimed.is_empty() || fixture.now().await >= due,
            "claimed at {before:?}, due at {due:?}"
        );
        (!claimed.is_empty()).then_some(claimed)
    })
    .await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].id, id("soon"));
}

/// Shows IBX-024.
async fn a_message_without_a_due_time_or_with_a_past_one_is_ready_at_once(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox.enqueue(&inbound("none")).await.unwrap();
    inbox
        .enqueue(&inbound("past").due_at(SystemTime::now() - HOUR))
        .await
        .unwrap();
    inbox
        .enqueue(&inbound("long ago").due_at(UNIX_EPOCH))
        .await
        .unwrap();
    inbox
        .enqueue(&inbound("before that").due_at(UNIX_EPOCH - HOUR))
        .await
        .unwrap();
    assert_eq!(
        inbox
            .claim(OwnerToken::new(), LEASE, 10)
            .await
            .unwrap()
            .len(),
        4
    );
}

/// Shows IBX-025, IBX-026.
async fn first_seen_is_the_first_arrival_and_last_seen_the_latest(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let before = fixture.now().await;
    inbox.enqueue(&inbound("evt_1")).await.unwrap();
    let after = fixture.now().await;
    let message = get(&inbox, "evt_1").await;
    assert!(before <= message.first_seen && message.first_seen <= after);
    assert_eq!(message.last_seen, message.first_seen);
    fixture.age("inbox_seen", "first_seen", HOUR).await;
    fixture.age("inbox_seen", "last_seen", HOUR).await;

    let before = fixture.now().await;
    inbox.enqueue(&inbound("evt_1")).await.unwrap();
    let after = fixture.now().await;

    let again = get(&inbox, "evt_1").await;
    assert_eq!(again.first_seen, message.first_seen - HOUR);
    assert!(before <= again.last_seen && again.last_seen <= after);
    let claimed = inbox.claim(OwnerToken::new(), LEASE, 1).await.unwrap();
    assert_eq!(
        (claimed[0].first_seen, claimed[0].last_seen),
        (again.first_seen, again.last_seen)
    );
}

/// Shows IBX-026, IBX-028, IBX-047, C-42.
async fn a_done_message_is_left_as_it_is(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox
        .enqueue(&inbound("evt_1").hash(*b"one"))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    inbox.claim(owner, LEASE, 1).await.unwrap();
    inbox.ack(owner, &[id("evt_1")]).await.unwrap();
    fixture.age("inbox_seen", "last_seen", HOUR).await;
    let before = get(&inbox, "evt_1").await;

    let again = Inbound::new("stripe", "evt_1", "other", "other")
        .hash(*b"two")
        .due_at(SystemTime::now() + HOUR);
    let accepted = inbox.enqueue(&again).await.unwrap();

    assert_eq!(
        accepted,
        Accepted {
            arrival: Arrival::AlreadyDone,
            hash_differs: true
        }
    );
    let mut after = get(&inbox, "evt_1").await;
    assert!(after.last_seen > before.last_seen);
    after.last_seen = before.last_seen;
    assert_eq!(after, before);
    assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);
}

/// Shows IBX-027, IBX-029, C-36.
async fn a_message_that_was_only_seen_gets_its_content_and_is_queued(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox
        .already_processed_with_hash(&id("evt_1"), b"one")
        .await
        .unwrap();
    fixture.age("inbox_seen", "first_seen", HOUR).await;
    let seen = get(&inbox, "evt_1").await;

    let due = SystemTime::now() - HOUR;
    let accepted = inbox
        .enqueue(&inbound("evt_1").hash(*b"two").due_at(due))
        .await
        .unwrap();

    assert_eq!(
        accepted,
        Accepted {
            arrival: Arrival::New,
            hash_differs: true
        }
    );
    let claimed = inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].payload.as_deref(), Some("payload"));
    assert_eq!(claimed[0].hash.as_deref(), Some(&b"two"[..]));
    assert_eq!(claimed[0].due_time.map(millis), Some(millis(due)));
    assert_eq!(claimed[0].first_seen, seen.first_seen);
    assert_eq!(claimed[0].progress.attempt_count, 0);
}

/// Shows IBX-029, C-42.
async fn a_waiting_message_gets_the_new_content(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox
        .enqueue(
            &inbound("evt_1")
                .hash(*b"one")
                .correlation("one")
                .header("a", "1"),
        )
        .await
        .unwrap();

    let due = SystemTime::now() + HOUR;
    let again = Inbound::new("stripe", "evt_1", "other", "new")
        .hash(*b"two")
        .due_at(due)
        .correlation("two")
        .header("b", "2");
    let accepted = inbox.enqueue(&again).await.unwrap();

    assert_eq!(
        accepted,
        Accepted {
            arrival: Arrival::Replaced,
            hash_differs: true
        }
    );
    let message = get(&inbox, "evt_1").await;
    assert_eq!(message.state, InboxState::Processing);
    assert_eq!(message.topic.as_deref(), Some("other"));
    assert_eq!(message.payload.as_deref(), Some("new"));
    assert_eq!(message.hash.as_deref(), Some(&b"two"[..]));
    assert_eq!(message.due_time.map(millis), Some(millis(due)));
    assert_eq!(message.correlation_id.as_deref(), Some("two"));
    assert_eq!(
        message.headers.into_iter().collect::<Vec<_>>(),
        [("b".to_owned(), "2".to_owned())]
    );
    assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox}").await, 1);
}

/// Shows IBX-029, C-42.
async fn the_hash_follows_the_content_even_to_none(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for (hash, differs) in [
        (Some(b"one"), false),
        (Some(b"two"), true),
        (None, false),
        (Some(b"six"), false),
    ] {
        let again = hash
            .iter()
            .fold(inbound("evt_1"), |inbound, hash| inbound.hash(**hash));
        assert_eq!(inbox.enqueue(&again).await.unwrap().hash_differs, differs);
        assert_eq!(
            get(&inbox, "evt_1").await.hash,
            hash.map(|hash| hash.to_vec())
        );
    }
}

/// Shows IBX-029, IBX-038, IBX-064, C-39.
async fn a_dead_message_gets_the_new_content_and_stays_dead_until_it_is_revived(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox
        .enqueue(&inbound("evt_1").hash(*b"one"))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    inbox.claim(owner, LEASE, 1).await.unwrap();
    inbox.fail(owner, &[id("evt_1")], "broken").await.unwrap();

    let due = SystemTime::now() - HOUR;
    let again = Inbound::new("stripe", "evt_1", "other", "new")
        .hash(*b"two")
        .due_at(due);
    let accepted = inbox.enqueue(&again).await.unwrap();

    assert_eq!(
        accepted,
        Accepted {
            arrival: Arrival::Dead,
            hash_differs: true
        }
    );
    let message = get(&inbox, "evt_1").await;
    assert_eq!(message.state, InboxState::Dead);
    assert_eq!(message.topic.as_deref(), Some("other"));
    assert_eq!(message.payload.as_deref(), Some("new"));
    assert_eq!(message.hash.as_deref(), Some(&b"two"[..]));
    assert_eq!(message.due_time.map(millis), Some(millis(due)));
    assert_eq!(message.progress.last_error.as_deref(), Some("broken"));
    assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);

    assert_eq!(inbox.revive(&[id("evt_1")]).await.unwrap(), 1);
    let claimed = inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
    assert_eq!(claimed[0].payload.as_deref(), Some("new"));
}

/// Shows IBX-029, C-40.
async fn a_leased_message_gets_the_new_content_and_keeps_lease_and_attempts(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox
        .enqueue(&inbound("evt_1").hash(*b"one"))
        .await
        .unwrap();
    let first = OwnerToken::new();
    inbox.claim(first, LEASE, 1).await.unwrap();
    inbox
        .abandon(first, &[id("evt_1")], Abandon::default().error("first"))
        .await
        .unwrap();
    fixture.skip_backoff().await;
    let owner = OwnerToken::new();
    assert_eq!(inbox.claim(owner, LEASE, 1).await.unwrap().len(), 1);
    let before = get(&inbox, "evt_1").await;

    let accepted = inbox
        .enqueue(&Inbound::new("stripe", "evt_1", "other", "new").hash(*b"two"))
        .await
        .unwrap();

    assert_eq!(
        accepted,
        Accepted {
            arrival: Arrival::Replaced,
            hash_differs: true
        }
    );
    let after = get(&inbox, "evt_1").await;
    assert_eq!(after.payload.as_deref(), Some("new"));
    assert_eq!(after.topic.as_deref(), Some("other"));
    assert_eq!(after.progress.owner_token, Some(owner));
    assert_eq!(after.progress.locked_until, before.progress.locked_until);
    assert_eq!(after.progress.attempt_count, 1);
    assert_eq!(after.progress.delivery_count, 2);
    assert_eq!(after.progress.last_error.as_deref(), Some("first"));
    assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);
    assert_eq!(inbox.ack(owner, &[id("evt_1")]).await.unwrap(), 1);
}

/// Shows IBX-042, C-40.
async fn a_backoff_outlives_a_new_arrival(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox.enqueue(&inbound("evt_1")).await.unwrap();
    let owner = OwnerToken::new();
    inbox.claim(owner, LEASE, 1).await.unwrap();
    inbox
        .abandon(owner, &[id("evt_1")], Abandon::after(HOUR))
        .await
        .unwrap();
    let before = get(&inbox, "evt_1").await.progress;

    for again in [inbound("evt_1"), inbound("evt_1").due_at(UNIX_EPOCH)] {
        inbox.enqueue(&again).await.unwrap();
        assert_eq!(get(&inbox, "evt_1").await.progress, before);
        assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);
    }
}

/// Shows IBX-029, C-41.
async fn no_due_time_on_a_new_arrival_overwrites_the_old_one(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox
        .enqueue(&inbound("evt_1").due_at(SystemTime::now() + HOUR))
        .await
        .unwrap();
    assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);

    inbox.enqueue(&inbound("evt_1")).await.unwrap();

    assert_eq!(get(&inbox, "evt_1").await.due_time, None);
    assert_eq!(
        inbox
            .claim(OwnerToken::new(), LEASE, 10)
            .await
            .unwrap()
            .len(),
        1
    );
}

/// Shows IBX-023, IBX-032, C-07.
async fn a_due_time_that_arrives_under_a_lease_still_holds_after_the_abandon(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox.enqueue(&inbound("evt_1")).await.unwrap();
    let owner = OwnerToken::new();
    inbox.claim(owner, LEASE, 1).await.unwrap();
    let due = SystemTime::now() + HOUR;
    inbox.enqueue(&inbound("evt_1").due_at(due)).await.unwrap();

    inbox
        .abandon(
            owner,
            &[id("evt_1")],
            Abandon::after(Duration::from_millis(1)),
        )
        .await
        .unwrap();

    let message = get(&inbox, "evt_1").await;
    assert_eq!(message.due_time.map(millis), Some(millis(due)));
    assert_eq!(
        message.progress.next_attempt_at.map(millis),
        Some(millis(due))
    );
    assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);
}

/// Shows IBX-014, IBX-102.
async fn an_arrival_in_the_callers_transaction_counts_when_that_commits(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for (commit, expected) in [
        (false, Arrival::New),
        (true, Arrival::New),
        (false, Arrival::Replaced),
        (true, Arrival::Replaced),
    ] {
        let accepted = match fixture.backend {
            Backend::Sqlite => {
                let mut connection = fixture.sqlite();
                let mut transaction = connection.transaction().unwrap();
                let accepted =
                    tx::now(inbox.enqueue_in(&mut transaction, &inbound("evt_1"))).unwrap();
                if commit {
                    transaction.commit().unwrap();
                }
                accepted
            }
            Backend::Postgres => {
                let mut client = fixture.postgres().await;
                let mut transaction = client.transaction().await.unwrap();
                let accepted = inbox
                    .enqueue_in(&mut transaction, &inbound("evt_1"))
                    .await
                    .unwrap();
                if commit {
                    transaction.commit().await.unwrap();
                } else {
                    transaction.rollback().await.unwrap();
                }
                accepted
            }
            Backend::MySql => {
                let mut client = fixture.mysql().await;
                let mut transaction = testkit::mysql::begin(&mut client).await;
                let accepted = inbox
                    .enqueue_in(&mut transaction, &inbound("evt_1"))
                    .await
                    .unwrap();
                if commit {
                    transaction.commit().await.unwrap();
                } else {
                    transaction.rollback().await.unwrap();
                }
                accepted
            }
            Backend::SqlServer => {
                let mut transaction = fixture.sqlserver().await;
                transaction.begin_transaction().await.unwrap();
                let accepted = inbox
                    .enqueue_in(&mut transaction, &inbound("evt_1"))
                    .await
                    .unwrap();
                if commit {
                    transaction.commit_transaction().await.unwrap();
                } else {
                    transaction.rollback_transaction().await.unwrap();
                }
                accepted
            }
        };
        assert_eq!(accepted.arrival, expected);
        let rows = i64::from(commit || expected == Arrival::Replaced);
        assert_eq!(fixture.number("SELECT count(*) FROM {inbox}").await, rows);
        assert_eq!(
            fixture.number("SELECT count(*) FROM {inbox_seen}").await,
            rows
        );
    }
}

/// Shows IBX-102.
async fn an_enqueue_that_fails_half_way_leaves_nothing(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    fixture.refuse("INSERT", "inbox").await;

    assert_eq!(
        inbox.enqueue(&inbound("evt_1")).await.unwrap_err().kind(),
        ErrorKind::Database
    );
    assert_nothing_written(&fixture).await;

    fixture.allow("INSERT").await;
    assert_eq!(
        inbox.enqueue(&inbound("evt_1")).await.unwrap().arrival,
        Arrival::New
    );
}

fn id(message_id: &str) -> InboxMessageId {
    InboxMessageId::new("stripe", message_id)
}

fn inbound(message_id: &str) -> Inbound {
    Inbound::new("stripe", message_id, "topic", "payload")
}

async fn get(inbox: &Inbox, message_id: &str) -> InboxMessage {
    inbox.get(&id(message_id)).await.unwrap().unwrap()
}

/// Enqueues a message, claims it and settles it.
async fn settle<F: Future<Output = usize>>(
    inbox: &Inbox,
    message_id: &str,
    settle: impl FnOnce(Inbox, OwnerToken, InboxMessageId) -> F,
) {
    inbox
        .enqueue(&inbound(message_id).due_at(UNIX_EPOCH))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    inbox.claim(owner, LEASE, 10).await.unwrap();
    assert_eq!(settle(inbox.clone(), owner, id(message_id)).await, 1);
}

/// Both databases keep at least milliseconds.
fn millis(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap().as_millis()
}

async fn assert_nothing_written(fixture: &Fixture) {
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox}").await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_seen}").await, 0);
}

testkit::mount!(
    an_enqueued_message_is_there_whole_for_a_store_opened_later,
    a_new_message_is_processing_and_was_never_attempted,
    one_message_enqueued_by_32_tasks_is_new_once,
    checks_and_enqueues_of_one_message_at_once_make_one_message,
    an_enqueue_says_what_the_message_was_before,
    an_empty_topic_source_or_message_id_is_refused,
    a_queued_message_cannot_be_without_a_payload,
    an_empty_payload_is_a_payload,
    names_of_255_characters_fit_and_longer_ones_are_refused,
    a_nul_character_is_refused_wherever_it_stands,
    topics_that_differ_in_case_or_spaces_are_different_topics,
    a_payload_comes_back_as_it_went_in_whatever_it_is,
    a_payload_of_many_megabytes_is_taken_in,
    a_message_due_later_is_held_back_until_its_time_has_come,
    a_message_without_a_due_time_or_with_a_past_one_is_ready_at_once,
    first_seen_is_the_first_arrival_and_last_seen_the_latest,
    a_done_message_is_left_as_it_is,
    a_message_that_was_only_seen_gets_its_content_and_is_queued,
    a_waiting_message_gets_the_new_content,
    the_hash_follows_the_content_even_to_none,
    a_dead_message_gets_the_new_content_and_stays_dead_until_it_is_revived,
    a_leased_message_gets_the_new_content_and_keeps_lease_and_attempts,
    a_backoff_outlives_a_new_arrival,
    no_due_time_on_a_new_arrival_overwrites_the_old_one,
    a_due_time_that_arrives_under_a_lease_still_holds_after_the_abandon,
    an_arrival_in_the_callers_transaction_counts_when_that_commits,
    an_enqueue_that_fails_half_way_leaves_nothing,
);
