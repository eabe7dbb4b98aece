//! Enqueueing into the outbox: what is stored, what is refused, and when a message becomes ready.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mysql_async::prelude::Queryable;
use postroom::{
    ErrorKind, List, Message, MessageId, NewJoin, OwnerToken, State, Value, WorkItemId,
};
use testkit::{Backend, Fixture, LEASE, eventually, micros};
use uuid::Uuid;

/// Shows OBX-001, OBX-002, OBX-014.
async fn enqueue_alone_commits_and_can_be_claimed(fixture: Fixture) {
    let receipt = fixture
        .room
        .outbox()
        .enqueue(&Message::new("a", "b"))
        .await
        .unwrap();

    let elsewhere = fixture.again().await.outbox();
    let claimed = elsewhere.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].id, receipt.work_item_id);
    assert_eq!(
        (claimed[0].topic.as_str(), claimed[0].payload.as_str()),
        ("a", "b")
    );
}

/// The row is in the table, whoever looks, and stays there when the store that wrote it is gone.
///
/// Shows OBX-001, OBX-002.
async fn a_message_outlives_the_store_that_wrote_it(fixture: Fixture) {
    let short_lived = fixture.again().await;
    let receipt = short_lived
        .outbox()
        .enqueue(&Message::new("a", "b"))
        .await
        .unwrap();
    drop(short_lived);

    let id = fixture.literal(receipt.work_item_id);
    let found = fixture
        .live(&format!("id = {id} AND topic = 'a' AND payload = 'b'"))
        .await;
    assert_eq!(found, 1);
}

/// A receipt names the work item and the message; the two are the same unless the caller chose.
///
/// Shows OBX-014, C-24.
async fn a_receipt_names_work_item_and_message(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let plain = outbox.enqueue(&Message::new("a", "")).await.unwrap();
    assert_eq!(plain.work_item_id.as_uuid(), plain.message_id.as_uuid());

    let (id, message_id) = (WorkItemId::new(), MessageId::new());
    let chosen = outbox
        .enqueue(&Message::new("a", "").id(id).message_id(message_id))
        .await
        .unwrap();
    assert_eq!((chosen.work_item_id, chosen.message_id), (id, message_id));
    let stored = outbox.get(id).await.unwrap().unwrap();
    assert_eq!((stored.id, stored.message_id), (id, message_id));
}

/// Joins know a message by its message id, not by its work item.
///
/// Shows C-26.
async fn a_step_is_found_by_message_id(fixture: Fixture) {
    let join = fixture.room.joins().start(&NewJoin::new(1)).await.unwrap();
    let message_id = MessageId::new();
    let message = Message::new("a", "").message_id(message_id);
    let receipt = fixture.room.outbox().enqueue(&message).await.unwrap();
    fixture.room.joins().attach(join, message_id).await.unwrap();

    let (owner, claimed) = fixture.claim(1).await;
    assert_eq!(claimed, [receipt.work_item_id]);
    fixture.room.outbox().ack(owner, &claimed).await.unwrap();

    assert_eq!(
        fixture
            .number("SELECT CAST(completed_steps AS bigint) FROM {outbox_join}")
            .await,
        1
    );
}

/// Shows OBX-003.
async fn in_a_callers_transaction_nothing_shows_before_the_commit(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("a", "b");
    fixture.sql("CREATE TABLE {orders} (id bigint)").await;
    let insert = fixture.fill("INSERT INTO {orders} VALUES (7)");

    match fixture.backend {
        Backend::Sqlite => {
            let mut connection = fixture.sqlite();
            let mut transaction = connection.transaction().unwrap();
            outbox.enqueue_in(&mut transaction, &message).await.unwrap();
            assert_eq!(outbox.counts().await.unwrap().ready, 0);
            transaction.execute_batch(&insert).unwrap();
            transaction.commit().unwrap();
        }
        Backend::Postgres => {
            let mut client = fixture.postgres().await;
            let mut transaction = client.transaction().await.unwrap();
            outbox.enqueue_in(&mut transaction, &message).await.unwrap();
            assert_eq!(outbox.counts().await.unwrap().ready, 0);
            assert!(fixture.claim(10).await.1.is_empty());
            transaction.batch_execute(&insert).await.unwrap();
            transaction.commit().await.unwrap();
        }
        Backend::MySql => {
            let mut client = fixture.mysql().await;
            let mut transaction = testkit::mysql::begin(&mut client).await;
            outbox.enqueue_in(&mut transaction, &message).await.unwrap();
            assert_eq!(outbox.counts().await.unwrap().ready, 0);
            assert!(fixture.claim(10).await.1.is_empty());
            transaction.query_drop(&insert).await.unwrap();
            transaction.commit().await.unwrap();
        }
        Backend::SqlServer => {
            let mut transaction = fixture.sqlserver().await;
            transaction.begin_transaction().await.unwrap();
            outbox.enqueue_in(&mut transaction, &message).await.unwrap();
            assert_eq!(outbox.counts().await.unwrap().ready, 0);
            assert!(fixture.claim(10).await.1.is_empty());
            transaction
                .simple_query(&insert)
                .await
                .unwrap()
                .into_results()
                .await
                .unwrap();
            transaction.commit_transaction().await.unwrap();
        }
    }

    assert_eq!(fixture.rows("orders").await, 1);
    assert_eq!(fixture.claim(10).await.1.len(), 1);
}

/// Shows OBX-003.
async fn a_callers_rollback_takes_the_messages_with_it(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let messages = [Message::new("a", "1"), Message::new("a", "2")];

    match fixture.backend {
        Backend::Sqlite => {
            let mut connection = fixture.sqlite();
            let mut transaction = connection.transaction().unwrap();
            outbox
                .enqueue_in(&mut transaction, &messages[0])
                .await
                .unwrap();
            outbox
                .enqueue_many_in(&mut transaction, &messages)
                .await
                .unwrap();
            transaction.rollback().unwrap();
        }
        Backend::Postgres => {
            let mut client = fixture.postgres().await;
            let mut transaction = client.transaction().await.unwrap();
            outbox
                .enqueue_in(&mut transaction, &messages[0])
                .await
                .unwrap();
            outbox
                .enqueue_many_in(&mut transaction, &messages)
                .await
                .unwrap();
            transaction.rollback().await.unwrap();
        }
        Backend::MySql => {
            let mut client = fixture.mysql().await;
            let mut transaction = testkit::mysql::begin(&mut client).await;
            outbox
                .enqueue_in(&mut transaction, &messages[0])
                .await
                .unwrap();
            outbox
                .enqueue_many_in(&mut transaction, &messages)
                .await
                .unwrap();
            transaction.rollback().await.unwrap();
        }
        Backend::SqlServer => {
            let mut transaction = fixture.sqlserver().await;
            transaction.begin_transaction().await.unwrap();
            outbox
                .enqueue_in(&mut transaction, &messages[0])
                .await
                .unwrap();
            outbox
                .enqueue_many_in(&mut transaction, &messages)
                .await
                .unwrap();
            transaction.rollback_transaction().await.unwrap();
        }
    }

    assert_eq!(fixture.rows("outbox").await, 0);
}

/// Input that is refused in a caller's transaction leaves that transaction as it was: it can still
/// commit.
///
/// Shows OBX-003, OBX-004.
async fn a_refused_message_leaves_the_callers_transaction_usable(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let (bad, good) = (Message::new("", ""), Message::new("a", ""));

    match fixture.backend {
        Backend::Sqlite => {
            let mut connection = fixture.sqlite();
            let mut transaction = connection.transaction().unwrap();
            assert!(outbox.enqueue_in(&mut transaction, &bad).await.is_err());
            outbox.enqueue_in(&mut transaction, &good).await.unwrap();
            transaction.commit().unwrap();
        }
        Backend::Postgres => {
            let mut client = fixture.postgres().await;
            let mut transaction = client.transaction().await.unwrap();
            let error = outbox.enqueue_in(&mut transaction, &bad).await.unwrap_err();
            assert_eq!(error.param(), Some("topic"));
            outbox.enqueue_in(&mut transaction, &good).await.unwrap();
            transaction.commit().await.unwrap();
        }
        Backend::MySql => {
            let mut client = fixture.mysql().await;
            let mut transaction = testkit::mysql::begin(&mut client).await;
            let error = outbox.enqueue_in(&mut transaction, &bad).await.unwrap_err();
            let error = testkit::mysql::ours(error);
            assert_eq!(error.param(), Some("topic"));
            outbox.enqueue_in(&mut transaction, &good).await.unwrap();
            transaction.commit().await.unwrap();
        }
        Backend::SqlServer => {
            let mut transaction = fixture.sqlserver().await;
            transaction.begin_transaction().await.unwrap();
            let error = outbox.enqueue_in(&mut transaction, &bad).await.unwrap_err();
            assert_eq!(error.param(), Some("topic"));
            outbox.enqueue_in(&mut transaction, &good).await.unwrap();
            transaction.commit_transaction().await.unwrap();
        }
    }

    assert_eq!(fixture.rows("outbox").await, 1);
}

/// Every refusal names its parameter and happens before anything is written.
///
/// Shows OBX-004, OBX-007, OBX-009, C-56.
async fn bad_input_is_refused_before_anything_is_written(fixture: Fixture) {
    let good = || Message::new("a", "b");
    let year_10000 = UNIX_EPOCH + Duration::from_secs(253_402_300_800);
    let invalid = |param| ErrorKind::InvalidArgument { param };
    let refused = [
        (Message::new("", "b"), invalid("topic")),
        (Message::new("x".repeat(256), "b"), invalid("topic")),
        (Message::new("🦀".repeat(256), "b"), invalid("topic")),
        (Message::new("a\0b", "b"), invalid("topic")),
        (Message::new("a", "b\0"), invalid("payload")),
        (
            good().correlation("x".repeat(256)),
            invalid("correlation_id"),
        ),
        (good().correlation("a\0"), invalid("correlation_id")),
        (good().header("", "x"), invalid("headers")),
        (good().header("x", "\0"), invalid("headers")),
        (good().id(WorkItemId::from_uuid(Uuid::nil())), invalid("id")),
        (
            good().message_id(MessageId::from_uuid(Uuid::nil())),
            invalid("message_id"),
        ),
        (
            good().due_at(year_10000),
            ErrorKind::OutOfRange { param: "due_at" },
        ),
    ];

    let outbox = fixture.room.outbox();
    for (message, kind) in refused {
        let error = outbox.enqueue(&message).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{message:?}");
        assert!(
            error.to_string().contains(error.param().unwrap()),
            "{error}"
        );
        let error = outbox
            .enqueue_many(&[good(), message.clone(), good()])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{message:?}");
        assert!(outbox.statements(&message).is_err());
    }
    assert_eq!(fixture.rows("outbox").await, 0);
}

/// A missing payload cannot be said in Rust; who writes by SQL is refused by the table. The same
/// holds for names that are empty or too long.
///
/// Shows OBX-004, OBX-005, OBX-007, OBX-009.
async fn the_table_refuses_what_the_library_refuses(fixture: Fixture) {
    let id = fixture.literal(WorkItemId::new());
    let row = |topic: &str, payload: &str, correlation: &str| {
        format!(
            "INSERT INTO {{outbox}} (id, message_id, topic, payload, correlation_id, created_at, next_attempt_at) \
             VALUES ({id}, {id}, {topic}, {payload}, {correlation}, {now}, {now})",
            now = fixture.time(0)
        )
    };
    let long = format!("'{}'", "x".repeat(256));

    for bad in [
        row("'a'", "NULL", "NULL"),
        row("NULL", "'b'", "NULL"),
        row("''", "'b'", "NULL"),
        row(&long, "'b'", "NULL"),
        row("'a'", "'b'", &long),
        row("'a'", "'b'", "''"),
    ] {
        assert!(fixture.refuses(&bad).await, "{bad:.200}");
    }
    assert_eq!(fixture.rows("outbox").await, 0);
    assert!(!fixture.refuses(&row("'a'", "''", "NULL")).await);
}

/// Shows OBX-006, OBX-011, OBX-114.
async fn any_text_is_a_payload(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let payloads = [
        String::new(),
        " ".to_owned(),
        "{\"broken\": ".to_owned(),
        "not json at all".to_owned(),
        "Robert'); DROP TABLE outbox; --".to_owned(),
        "\"quoted\" 'twice' \\ back\\slash $1 ?1 {outbox} %s".to_owned(),
        "line\r\nline\n\ttab\u{1}\u{7f}".to_owned(),
        "👩‍🚀 e\u{301} \u{10ffff} \u{feff}".to_owned(),
        "5 MB ".repeat(1_048_576),
    ];

    for payload in &payloads {
        let receipt = outbox
            .enqueue(&Message::new("a", payload.as_str()))
            .await
            .unwrap();
        let stored = outbox.get(receipt.work_item_id).await.unwrap().unwrap();
        assert!(stored.payload == *payload, "{payload:.40}");
    }
    let messages: Vec<_> = payloads
        .iter()
        .map(|payload| Message::new("a", payload.as_str()))
        .collect();
    outbox.enqueue_many(&messages).await.unwrap();

    let mut claimed: Vec<_> = outbox
        .claim(OwnerToken::new(), LEASE, 100)
        .await
        .unwrap()
        .into_iter()
        .map(|message| message.payload)
        .collect();
    let mut expected = [payloads.clone(), payloads].concat();
    claimed.sort();
    expected.sort();
    assert!(claimed == expected);
}

/// Shows OBX-007, OBX-009, C-56.
async fn names_of_255_characters_are_accepted_whatever_their_bytes(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    for name in ["x".repeat(255), "é".repeat(255), "🦀".repeat(255)] {
        let message = Message::new(name.as_str(), "").correlation(&name);
        let receipt = outbox.enqueue(&message).await.unwrap();
        let stored = outbox.get(receipt.work_item_id).await.unwrap().unwrap();
        assert_eq!(stored.topic, name);
        assert_eq!(stored.correlation_id, Some(name));
    }
}

/// Shows OBX-008.
async fn an_empty_correlation_id_is_stored_as_null(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let empty = Message::new("a", "").correlation("");
    let receipt = outbox.enqueue(&empty).await.unwrap();
    outbox.enqueue_many(&[empty.clone(), empty]).await.unwrap();

    assert_eq!(fixture.live("correlation_id IS NULL").await, 3);
    assert_eq!(
        outbox
            .get(receipt.work_item_id)
            .await
            .unwrap()
            .unwrap()
            .correlation_id,
        None
    );
}

/// Shows OBX-009.
async fn a_correlation_id_is_stored_as_it_is(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let receipt = outbox
        .enqueue(&Message::new("a", "").correlation("Req-1 "))
        .await
        .unwrap();

    let stored = outbox.get(receipt.work_item_id).await.unwrap().unwrap();
    assert_eq!(stored.correlation_id.as_deref(), Some("Req-1 "));
    assert_eq!(fixture.live("correlation_id = 'Req-1 '").await, 1);
}

/// Shows OBX-010, C-44.
async fn topics_differ_by_case_and_by_trailing_spaces(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let topics = [
        "Order.Created",
        "order.created",
        "order.created ",
        " order.created",
        "ORDER.CREATED",
    ];
    for topic in topics {
        outbox.enqueue(&Message::new(topic, topic)).await.unwrap();
    }

    for topic in topics {
        let found = outbox
            .list(&List::new(State::Ready).topic(topic))
            .await
            .unwrap();
        let payloads: Vec<_> = found
            .iter()
            .map(|message| message.payload.as_str())
            .collect();
        assert_eq!(payloads, [topic]);
    }
    let claimed = outbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
    assert_eq!(
        claimed
            .iter()
            .map(|message| message.topic.as_str())
            .collect::<HashSet<_>>(),
        topics.into()
    );
}

/// The message is held back for the whole time, then claimed, and its due time is kept as given.
///
/// Shows OBX-012, OBX-018, C-07.
async fn a_future_message_is_hidden_until_it_is_due(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let due = fixture.clock().await + 400_000;
    let time = UNIX_EPOCH + Duration::from_micros(due.unsigned_abs());
    let receipt = outbox
        .enqueue(&Message::new("a", "").due_at(time))
        .await
        .unwrap();

    let (before, after) = eventually(async || {
        let before = fixture.clock().await;
        let (_, claimed) = fixture.claim(1).await;
        (claimed == [receipt.work_item_id]).then_some(())?;
        Some((before, fixture.clock().await))
    })
    .await;

    assert!(after >= due, "claimed {} µs before it was due", due - after);
    assert!(before - due < 10_000_000);
    assert_eq!(
        fixture
            .time_of("outbox", "due_time", receipt.work_item_id)
            .await,
        due
    );
}

/// A message that is due far ahead is not claimed, not even when nothing else is there.
///
/// Shows OBX-012, OBX-018.
async fn a_message_due_tomorrow_is_not_claimed_today(fixture: Fixture) {
    let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    let outbox = fixture.room.outbox();
    outbox
        .enqueue_many(&[
            Message::new("a", "").due_at(tomorrow),
            Message::new("b", ""),
        ])
        .await
        .unwrap();

    let claimed = outbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
    assert_eq!(
        claimed
            .iter()
            .map(|message| message.topic.as_str())
            .collect::<Vec<_>>(),
        ["b"]
    );
    assert!(fixture.claim(10).await.1.is_empty());
    assert_eq!(outbox.counts().await.unwrap().ready, 1);
}

/// Shows OBX-013.
async fn no_due_time_and_a_past_one_mean_now(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let past = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let before_1970 = UNIX_EPOCH - Duration::from_secs(1);
    let messages = [
        Message::new("none", ""),
        Message::new("past", "").due_at(past),
        Message::new("earlier", "").due_at(before_1970),
    ];
    outbox.enqueue_many(&messages).await.unwrap();
    outbox.enqueue(&messages[1]).await.unwrap();

    let claimed = outbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
    assert_eq!(claimed.len(), 4);
    let due = |topic| {
        claimed
            .iter()
            .find(|message| message.topic == topic)
            .unwrap()
            .due_time
    };
    assert_eq!(due("none"), None);
    assert_eq!(due("past"), Some(past));
    assert_eq!(due("earlier"), Some(before_1970));
}

/// "Due now" includes this very instant: a message is ready in the millisecond in which it is written.
///
/// Shows OBX-013, C-20.
async fn a_message_is_ready_at_once(fixture: Fixture) {
    for _ in 0..200 {
        fixture.enqueue_and_claim().await;
    }
}

/// Shows OBX-014.
async fn every_message_has_an_id_of_its_own(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let same = vec![Message::new("a", "b"); 1000];
    let mut receipts = outbox.enqueue_many(&same).await.unwrap();
    receipts.push(outbox.enqueue(&same[0]).await.unwrap());
    receipts.push(outbox.enqueue(&same[0]).await.unwrap());

    let ids: HashSet<_> = receipts
        .iter()
        .map(|receipt| receipt.work_item_id)
        .collect();
    assert_eq!(ids.len(), 1002);
    assert_eq!(
        fixture
            .number("SELECT count(DISTINCT id) FROM {outbox}")
            .await,
        1002
    );
}

/// Shows OBX-014.
async fn an_id_that_waits_already_is_refused(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("a", "first").id(WorkItemId::new());
    outbox.enqueue(&message).await.unwrap();

    let kind = ErrorKind::AlreadyExists { what: "work item" };
    assert_eq!(outbox.enqueue(&message).await.unwrap_err().kind(), kind);
    let twice = Message::new("a", "").id(WorkItemId::new());
    assert_eq!(
        outbox
            .enqueue_many(&[twice.clone(), twice])
            .await
            .unwrap_err()
            .kind(),
        kind
    );
    assert_eq!(fixture.live("payload = 'first'").await, 1);
    assert_eq!(fixture.rows("outbox").await, 1);
}

/// The database's clock stamps the row: the statements carry no time of ours.
///
/// Shows OBX-015, C-23.
async fn the_database_says_when_a_message_was_created(fixture: Fixture) {
    let message = Message::new("a", "").correlation("c");
    let (_, statements) = fixture.room.outbox().statements(&message).unwrap();
    let times = statements
        .iter()
        .flat_map(|s| &s.values)
        .filter(|value| matches!(value, Value::Int(Some(_))));
    assert_eq!(times.count(), 0);

    let before = fixture.clock().await;
    let one = fixture.room.outbox().enqueue(&message).await.unwrap();
    let many = fixture
        .room
        .outbox()
        .enqueue_many(&[message.clone(), message])
        .await
        .unwrap();
    let after = fixture.clock().await;

    for receipt in [one, many[0], many[1]] {
        let created = fixture
            .time_of("outbox", "created_at", receipt.work_item_id)
            .await;
        assert!(
            (before..=after).contains(&created),
            "{before} {created} {after}"
        );
        let stored = fixture
            .room
            .outbox()
            .get(receipt.work_item_id)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            micros(stored.created_at.duration_since(UNIX_EPOCH).unwrap()),
            created
        );
    }
}

/// Shows OBX-016, C-04, C-06.
async fn a_new_message_is_unprocessed_and_was_never_tried(fixture: Fixture) {
    let id = fixture.enqueue(1).await[0];

    let stored = fixture.room.outbox().get(id).await.unwrap().unwrap();
    assert!(!stored.is_processed());
    assert_eq!(stored.state, State::Ready);
    let progress = stored.progress;
    assert_eq!(
        (
            progress.attempt_count,
            progress.deferral_count,
            progress.delivery_count
        ),
        (0, 0, 0)
    );
    assert_eq!(
        (
            progress.processed_at,
            progress.processed_by,
            progress.last_error
        ),
        (None, None, None)
    );
    let untouched = "attempt_count = 0 AND deferral_count = 0 AND delivery_count = 0 AND locked_until IS NULL \
                     AND owner_token IS NULL AND last_error IS NULL AND last_attempt_at IS NULL";
    assert_eq!(fixture.live(untouched).await, 1);
    let unprocessed = match fixture.backend {
        Backend::Sqlite | Backend::MySql => {
            "SELECT count(*) FROM {outbox_all} WHERE is_processed = 0"
        }
        Backend::Postgres => "SELECT count(*) FROM {outbox_all} WHERE NOT is_processed",
        Backend::SqlServer => "SELECT count(*) FROM {outbox_all} WHERE is_processed = 0",
    };
    assert_eq!(fixture.number(unprocessed).await, 1);
}

/// Shows OBX-002, OBX-097.
async fn many_messages_are_written_together_or_not_at_all(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let unknown = postroom::JoinId::new();
    let messages = [
        Message::new("a", "1"),
        Message::new("a", "2").join(unknown),
        Message::new("a", "3"),
    ];

    let error = outbox.enqueue_many(&messages).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound { what: "join" });
    let error = outbox.enqueue(&messages[1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound { what: "join" });
    assert_eq!(fixture.rows("outbox").await, 0);

    assert!(outbox.enqueue_many(&[]).await.unwrap().is_empty());
    let receipts = outbox
        .enqueue_many(&[Message::new("a", "1"), Message::new("a", "2")])
        .await
        .unwrap();
    let first = outbox.get(receipts[0].work_item_id).await.unwrap().unwrap();
    assert_eq!(first.payload, "1");
    assert_eq!(fixture.rows("outbox").await, 2);
}

/// Shows OBX-001.
async fn headers_come_back_as_they_were(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("a", "")
        .header("traceparent", "00-ab")
        .header("quote\"d", "ü 🦀 \n");
    outbox.enqueue(&message).await.unwrap();

    let claimed = outbox
        .claim(OwnerToken::new(), LEASE, 1)
        .await
        .unwrap()
        .remove(0);
    let headers: Vec<_> = claimed
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(headers, [("quote\"d", "ü 🦀 \n"), ("traceparent", "00-ab")]);
}

testkit::mount!(
    enqueue_alone_commits_and_can_be_claimed,
    a_message_outlives_the_store_that_wrote_it,
    a_receipt_names_work_item_and_message,
    a_step_is_found_by_message_id,
    in_a_callers_transaction_nothing_shows_before_the_commit,
    a_callers_rollback_takes_the_messages_with_it,
    a_refused_message_leaves_the_callers_transaction_usable,
    bad_input_is_refused_before_anything_is_written,
    the_table_refuses_what_the_library_refuses,
    any_text_is_a_payload,
    names_of_255_characters_are_accepted_whatever_their_bytes,
    an_empty_correlation_id_is_stored_as_null,
    a_correlation_id_is_stored_as_it_is,
    topics_differ_by_case_and_by_trailing_spaces,
    a_future_message_is_hidden_until_it_is_due,
    a_message_due_tomorrow_is_not_claimed_today,
    no_due_time_and_a_past_one_mean_now,
    a_message_is_ready_at_once,
    every_message_has_an_id_of_its_own,
    an_id_that_waits_already_is_refused,
    the_database_says_when_a_message_was_created,
    a_new_message_is_unprocessed_and_was_never_tried,
    many_messages_are_written_together_or_not_at_all,
    headers_come_back_as_they_were,
);
