//! The outbox as a transport sees it: envelopes with destinations, loaded under a lease and marked.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postroom::transport::{Endpoint, Envelope, OutboxState, TransportOutbox};
use postroom::{ErrorKind, Message};
use testkit::{Backend, Fixture, eventually};

fn orders() -> Endpoint {
    Endpoint::new("orders", "orders.created")
}

/// Saves envelopes in a transaction of the caller's and commits it.
async fn save(fixture: &Fixture, envelopes: &[(Endpoint, Envelope)]) -> Vec<String> {
    let outbox = fixture.room.transport_outbox();
    match fixture.backend {
        Backend::Sqlite => {
            let mut connection = fixture.sqlite();
            let mut transaction = connection.transaction().unwrap();
            let ids = outbox
                .save_batch(&mut transaction, envelopes)
                .await
                .unwrap();
            transaction.commit().unwrap();
            ids
        }
        Backend::Postgres => {
            let mut client = fixture.postgres().await;
            let mut transaction = client.transaction().await.unwrap();
            let ids = outbox
                .save_batch(&mut transaction, envelopes)
                .await
                .unwrap();
            transaction.commit().await.unwrap();
            ids
        }
        Backend::MySql => {
            let mut client = fixture.mysql().await;
            let mut transaction = testkit::mysql::begin(&mut client).await;
            let ids = outbox
                .save_batch(&mut transaction, envelopes)
                .await
                .unwrap();
            transaction.commit().await.unwrap();
            ids
        }
        Backend::SqlServer => {
            let mut transaction = fixture.sqlserver().await;
            transaction.begin_transaction().await.unwrap();
            let ids = outbox
                .save_batch(&mut transaction, envelopes)
                .await
                .unwrap();
            transaction.commit_transaction().await.unwrap();
            ids
        }
    }
}

/// Saves so many envelopes for the same destination.
async fn saved(fixture: &Fixture, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        ids.extend(
            save(
                fixture,
                &[(orders(), Envelope::new(number.to_string(), "order", "x"))],
            )
            .await,
        );
    }
    ids
}

async fn load_ids(outbox: &TransportOutbox, batch: usize) -> Vec<String> {
    outbox
        .load_pending(batch)
        .await
        .unwrap()
        .into_iter()
        .map(|message| message.id)
        .collect()
}

/// Shows HDT-01.
async fn an_envelope_is_saved_in_the_callers_transaction(fixture: Fixture) {
    let outbox = fixture.room.transport_outbox();
    let envelope = Envelope::new("m-1", "order", "x");
    match fixture.backend {
        Backend::Sqlite => {
            let mut connection = fixture.sqlite();
            let mut undone = connection.transaction().unwrap();
            outbox
                .save(&mut undone, &orders(), &envelope)
                .await
                .unwrap();
            undone.rollback().unwrap();
            assert_eq!(fixture.rows("outbox").await, 0);
            let mut kept = connection.transaction().unwrap();
            outbox.save(&mut kept, &orders(), &envelope).await.unwrap();
            assert_eq!(fixture.rows("outbox").await, 0, "not before the commit");
            kept.commit().unwrap();
        }
        Backend::Postgres => {
            let mut client = fixture.postgres().await;
            let mut undone = client.transaction().await.unwrap();
            outbox
                .save(&mut undone, &orders(), &envelope)
                .await
                .unwrap();
            undone.rollback().await.unwrap();
            assert_eq!(fixture.rows("outbox").await, 0);
            let mut kept = client.transaction().await.unwrap();
            outbox.save(&mut kept, &orders(), &envelope).await.unwrap();
            assert_eq!(fixture.rows("outbox").await, 0, "not before the commit");
            kept.commit().await.unwrap();
        }
        Backend::MySql => {
            let mut client = fixture.mysql().await;
            let mut undone = testkit::mysql::begin(&mut client).await;
            outbox
                .save(&mut undone, &orders(), &envelope)
                .await
                .unwrap();
            undone.rollback().await.unwrap();
            assert_eq!(fixture.rows("outbox").await, 0);
            let mut kept = testkit::mysql::begin(&mut client).await;
            outbox.save(&mut kept, &orders(), &envelope).await.unwrap();
            assert_eq!(fixture.rows("outbox").await, 0, "not before the commit");
            kept.commit().await.unwrap();
        }
        Backend::SqlServer => {
            let mut undone = fixture.sqlserver().await;
            undone.begin_transaction().await.unwrap();
            outbox
                .save(&mut undone, &orders(), &envelope)
                .await
                .unwrap();
            undone.rollback_transaction().await.unwrap();
            assert_eq!(fixture.rows("outbox").await, 0);
            let mut kept = fixture.sqlserver().await;
            kept.begin_transaction().await.unwrap();
            outbox.save(&mut kept, &orders(), &envelope).await.unwrap();
            assert_eq!(fixture.rows("outbox").await, 0, "not before the commit");
            kept.commit_transaction().await.unwrap();
        }
    }
    assert_eq!(fixture.rows("outbox").await, 1);
}

/// What goes in comes out: any bytes, any headers, name and address.
///
/// Shows HDT-01, HDT-03.
async fn an_envelope_comes_back_as_it_was(fixture: Fixture) {
    let payloads: [&[u8]; 5] = [
        b"",
        b"{\"id\":7}",
        "🦀 \n'".as_bytes(),
        &[0, 159, 146, 150, 255],
        b"nul\0nul",
    ];
    let envelopes: Vec<_> = payloads
        .iter()
        .enumerate()
        .map(|(number, payload)| {
            let envelope = Envelope::new(format!("m-{number}"), "order.Created", *payload)
                .header("Trace", "ü 1");
            (orders(), envelope)
        })
        .collect();
    let ids = save(&fixture, &envelopes).await;

    let loaded = fixture
        .room
        .transport_outbox()
        .load_pending(100)
        .await
        .unwrap();
    assert_eq!(loaded.len(), 5);
    for (id, (destination, envelope)) in ids.iter().zip(&envelopes) {
        let message = loaded.iter().find(|message| message.id == *id).unwrap();
        assert_eq!(
            (&message.destination, &message.envelope),
            (destination, envelope)
        );
        assert_eq!(
            (message.attempts, message.scheduled_at, message.processed_at),
            (0, None, None)
        );
        assert_eq!(message.error_message, None);
    }
}

/// Shows HDT-02.
async fn a_batch_is_saved_whole_or_not_at_all(fixture: Fixture) {
    let outbox = fixture.room.transport_outbox();
    let good = || (orders(), Envelope::new("m", "order", "x"));
    let bad = [
        (
            Endpoint::new("orders", ""),
            Envelope::new("m", "order", "x"),
        ),
        (orders(), Envelope::new("", "order", "x")),
        (orders(), Envelope::new("m", "", "x")),
        (
            orders(),
            Envelope::new("m", "order", "x").header("postroom-destination", "elsewhere"),
        ),
    ];
    for bad in bad {
        let batch = [good(), bad, good()];
        match fixture.backend {
            Backend::Sqlite => {
                let mut connection = fixture.sqlite();
                let mut transaction = connection.transaction().unwrap();
                assert!(outbox.save_batch(&mut transaction, &batch).await.is_err());
                transaction.commit().unwrap();
            }
            Backend::Postgres => {
                let mut client = fixture.postgres().await;
                let mut transaction = client.transaction().await.unwrap();
                let error = outbox
                    .save_batch(&mut transaction, &batch)
                    .await
                    .unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }));
                transaction.commit().await.unwrap();
            }
            Backend::MySql => {
                let mut client = fixture.mysql().await;
                let mut transaction = testkit::mysql::begin(&mut client).await;
                let error = outbox
                    .save_batch(&mut transaction, &batch)
                    .await
                    .unwrap_err();
                let error = testkit::mysql::ours(error);
                assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }));
                transaction.commit().await.unwrap();
            }
            Backend::SqlServer => {
                let mut transaction = fixture.sqlserver().await;
                transaction.begin_transaction().await.unwrap();
                let error = outbox
                    .save_batch(&mut transaction, &batch)
                    .await
                    .unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }));
                transaction.commit_transaction().await.unwrap();
            }
        }
    }
    assert_eq!(fixture.rows("outbox").await, 0);
    assert!(save(&fixture, &[]).await.is_empty());
    assert_eq!(save(&fixture, &[good(), good(), good()]).await.len(), 3);
    assert_eq!(fixture.rows("outbox").await, 3);
}

/// Shows HDT-03.
async fn pending_messages_are_loaded_oldest_first_and_at_most_a_batch(fixture: Fixture) {
    let ids = saved(&fixture, 5).await;
    let outbox = fixture.room.transport_outbox();

    assert_eq!(load_ids(&outbox, 2).await, ids[..2]);
    let rest = outbox.load_pending(100).await.unwrap();
    assert_eq!(
        rest.iter().map(|message| &message.id).collect::<Vec<_>>(),
        ids[2..].iter().collect::<Vec<_>>()
    );
    assert!(
        rest.iter()
            .all(|message| message.state == OutboxState::Processing)
    );
    assert!(rest.is_sorted_by_key(|message| message.created_at));
    assert!(outbox.load_pending(100).await.unwrap().is_empty());
    assert_eq!(
        outbox.load_pending(0).await.unwrap_err().kind(),
        ErrorKind::OutOfRange { param: "batch" }
    );
}

/// Shows HDT-03.
async fn a_scheduled_message_is_loaded_when_its_time_has_come(fixture: Fixture) {
    let soon = UNIX_EPOCH + Duration::from_micros((fixture.clock().await + 300_000).unsigned_abs());
    let never = SystemTime::now() + Duration::from_secs(86_400);
    let messages = [
        Message::new("soon", "").due_at(soon),
        Message::new("never", "").due_at(never),
    ];
    fixture.room.outbox().enqueue_many(&messages).await.unwrap();
    let outbox = fixture.room.transport_outbox();

    let loaded = eventually(async || {
        Some(outbox.load_pending(10).await.unwrap()).filter(|loaded| !loaded.is_empty())
    })
    .await;
    assert_eq!(
        loaded
            .iter()
            .map(|message| message.destination.address.as_str())
            .collect::<Vec<_>>(),
        ["soon"]
    );
    assert!(
        fixture.clock().await
            >= i64::try_from(soon.duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
    );
    assert_eq!(loaded[0].scheduled_at, Some(soon));
}

/// Shows HDT-04.
async fn a_dispatched_message_says_so_and_when(fixture: Fixture) {
    let ids = saved(&fixture, 1).await;
    let outbox = fixture.room.transport_outbox();
    assert_eq!(
        outbox.get(&ids[0]).await.unwrap().unwrap().state,
        OutboxState::Pending
    );
    outbox.load_pending(1).await.unwrap();

    let before = fixture.clock().await;
    outbox.mark_dispatched(&ids[0]).await.unwrap();
    let after = fixture.clock().await;

    let message = outbox.get(&ids[0]).await.unwrap().unwrap();
    assert_eq!(message.state, OutboxState::Dispatched);
    assert!((before..=after).contains(&since_1970(message.processed_at)));
    assert!(outbox.load_pending(10).await.unwrap().is_empty());
}

/// Shows HDT-05, C-05, C-14, C-16.
async fn a_failed_message_waits_for_its_retry(fixture: Fixture) {
    let ids = saved(&fixture, 1).await;
    let outbox = fixture.room.transport_outbox();
    outbox.load_pending(1).await.unwrap();

    let before = fixture.clock().await;
    outbox
        .mark_failed(&ids[0], "no route", Some(Duration::from_secs(3600)))
        .await
        .unwrap();
    let after = fixture.clock().await;

    let message = outbox.get(&ids[0]).await.unwrap().unwrap();
    assert_eq!((message.state, message.attempts), (OutboxState::Failed, 1));
    assert_eq!(message.error_message.as_deref(), Some("no route"));
    let tried = since_1970(message.processed_at);
    assert!((before..=after).contains(&tried));
    assert_eq!(since_1970(message.scheduled_at), tried + 3_600_000_000);
    assert!(outbox.load_pending(10).await.unwrap().is_empty());

    fixture.skip_backoff().await;
    let again = outbox.load_pending(10).await.unwrap();
    assert_eq!(
        again
            .iter()
            .map(|message| (&message.id, message.attempts))
            .collect::<Vec<_>>(),
        [(&ids[0], 1)]
    );
}

/// Without a time, a failed message is tried again at once, and as often as it takes.
///
/// Shows HDT-03, HDT-05, C-14.
async fn a_failed_message_is_loaded_again_at_once(fixture: Fixture) {
    let ids = saved(&fixture, 1).await;
    let outbox = fixture.room.transport_outbox();
    for attempts in 0..3 {
        let loaded = outbox.load_pending(10).await.unwrap();
        assert_eq!(
            (loaded[0].id.as_str(), loaded[0].attempts),
            (ids[0].as_str(), attempts)
        );
        outbox.mark_failed(&ids[0], "no route", None).await.unwrap();
    }
    assert_eq!(load_ids(&outbox, 10).await, ids);
    outbox.mark_dispatched(&ids[0]).await.unwrap();
    assert_eq!(
        outbox.get(&ids[0]).await.unwrap().unwrap().state,
        OutboxState::Dispatched
    );
}

/// A retry does not lose a message its place: within a batch the oldest comes first.
///
/// Shows HDT-03, C-14.
async fn a_failed_message_comes_before_younger_ones(fixture: Fixture) {
    let ids = saved(&fixture, 2).await;
    let outbox = fixture.room.transport_outbox();
    assert_eq!(load_ids(&outbox, 1).await, ids[..1]);
    outbox.mark_failed(&ids[0], "no route", None).await.unwrap();

    assert_eq!(load_ids(&outbox, 10).await, ids);
}

/// Shows HDT-06, C-05, C-16.
async fn a_poisoned_message_is_given_up(fixture: Fixture) {
    let ids = saved(&fixture, 1).await;
    let outbox = fixture.room.transport_outbox();
    outbox.load_pending(1).await.unwrap();
    outbox.mark_failed(&ids[0], "first", None).await.unwrap();
    outbox.load_pending(1).await.unwrap();

    let before = fixture.clock().await;
    outbox.mark_poisoned(&ids[0], "for good").await.unwrap();
    let after = fixture.clock().await;

    let message = outbox.get(&ids[0]).await.unwrap().unwrap();
    assert_eq!(
        (message.state, message.attempts),
        (OutboxState::Poisoned, 1),
        "attempts are as they were"
    );
    assert_eq!(message.error_message.as_deref(), Some("for good"));
    assert!((before..=after).contains(&since_1970(message.processed_at)));
    fixture.skip_backoff().await;
    assert!(outbox.load_pending(10).await.unwrap().is_empty());
}

/// Shows HDT-04, HDT-05, HDT-06.
async fn an_unknown_id_changes_nothing(fixture: Fixture) {
    let ids = saved(&fixture, 1).await;
    let outbox = fixture.room.transport_outbox();
    let unknown = postroom::WorkItemId::new().to_string();
    for id in [
        unknown.as_str(),
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "",
        "'; DROP TABLE outbox",
        ids[0].as_str(),
    ] {
        outbox.mark_dispatched(id).await.unwrap();
        outbox.mark_failed(id, "no", None).await.unwrap();
        outbox.mark_poisoned(id, "no").await.unwrap();
    }
    let message = outbox.get(&ids[0]).await.unwrap().unwrap();
    assert_eq!(
        (message.state, message.attempts, message.error_message),
        (OutboxState::Pending, 0, None)
    );
    assert_eq!(
        (
            fixture.rows("outbox_done").await,
            fixture.rows("outbox_dead").await
        ),
        (0, 0)
    );
}

/// Two dispatchers never load the same message, and one cannot mark what the other has loaded.
///
/// Shows C-15.
async fn two_dispatchers_do_not_share_a_message(fixture: Fixture) {
    let ids = saved(&fixture, 4).await;
    let (one, two) = (
        fixture.room.transport_outbox(),
        fixture.again().await.transport_outbox(),
    );
    let (first, second) = (load_ids(&one, 2).await, load_ids(&two, 10).await);
    assert_eq!([first.clone(), second].concat(), ids);

    two.mark_dispatched(&first[0]).await.unwrap();
    two.mark_poisoned(&first[0], "no").await.unwrap();
    assert_eq!(
        one.get(&first[0]).await.unwrap().unwrap().state,
        OutboxState::Processing
    );
    one.mark_dispatched(&first[0]).await.unwrap();
    assert_eq!(
        one.get(&first[0]).await.unwrap().unwrap().state,
        OutboxState::Dispatched
    );
}

/// A dispatcher that lost its lease to another cannot mark the message any more.
///
/// Shows C-15, C-18.
async fn a_lost_lease_marks_nothing(fixture: Fixture) {
    let ids = saved(&fixture, 1).await;
    let (slow, fast) = (
        fixture.room.transport_outbox(),
        fixture.again().await.transport_outbox(),
    );
    let slow = slow.lease(Duration::from_millis(300));
    slow.load_pending(1).await.unwrap();
    eventually(async || (load_ids(&fast, 1).await == ids).then_some(())).await;

    slow.mark_dispatched(&ids[0]).await.unwrap();
    slow.mark_failed(&ids[0], "late", None).await.unwrap();
    slow.mark_poisoned(&ids[0], "late").await.unwrap();
    let message = fast.get(&ids[0]).await.unwrap().unwrap();
    assert_eq!(
        (message.state, message.attempts),
        (OutboxState::Processing, 0)
    );
    fast.mark_dispatched(&ids[0]).await.unwrap();
    assert_eq!(
        fast.get(&ids[0]).await.unwrap().unwrap().state,
        OutboxState::Dispatched
    );
}

/// A payload that somebody else spoilt does not keep the rest of the batch from being loaded.
///
/// Shows HDT-03.
async fn a_spoilt_message_does_not_stop_the_batch(fixture: Fixture) {
    save(
        &fixture,
        &[(orders(), Envelope::new("m-1", "order", [0, 255]))],
    )
    .await;
    fixture
        .sql("UPDATE {outbox} SET payload = 'no base64!'")
        .await;
    let good = saved(&fixture, 1).await;

    let loaded = fixture
        .room
        .transport_outbox()
        .load_pending(10)
        .await
        .unwrap();
    assert_eq!(loaded.len(), 2);
    assert_eq!(loaded[0].envelope.payload, b"no base64!");
    assert_eq!(loaded[1].id, good[0]);
}

/// Shows HDT-07, C-16.
async fn a_cleanup_takes_only_what_was_dispatched_before(fixture: Fixture) {
    let ids = saved(&fixture, 5).await;
    let outbox = fixture.room.transport_outbox();
    outbox.load_pending(4).await.unwrap();
    outbox.mark_dispatched(&ids[0]).await.unwrap();
    outbox.mark_dispatched(&ids[1]).await.unwrap();
    outbox
        .mark_failed(&ids[2], "no", Some(Duration::from_secs(60)))
        .await
        .unwrap();
    outbox.mark_poisoned(&ids[3], "no").await.unwrap();
    let edge = fixture.clock().await - 3_600_000_000;
    let id = |index: usize| ids[index].parse().unwrap();
    fixture.settled_at("outbox_done", id(0), edge - 1).await;
    fixture.settled_at("outbox_done", id(1), edge).await;
    fixture.settled_at("outbox_dead", id(3), edge - 1).await;
    fixture
        .age("outbox", "last_attempt_at", Duration::from_secs(86_400))
        .await;

    let older_than = UNIX_EPOCH + Duration::from_micros(edge.unsigned_abs());
    assert_eq!(outbox.cleanup_dispatched(older_than).await.unwrap(), 1);

    assert_eq!(outbox.get(&ids[0]).await.unwrap(), None);
    let states = async |index: usize| outbox.get(&ids[index]).await.unwrap().unwrap().state;
    assert_eq!(states(1).await, OutboxState::Dispatched);
    assert_eq!(states(2).await, OutboxState::Failed);
    assert_eq!(states(3).await, OutboxState::Poisoned);
    assert_eq!(states(4).await, OutboxState::Pending);
}

fn since_1970(time: Option<SystemTime>) -> i64 {
    i64::try_from(
        time.unwrap()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_micros(),
    )
    .unwrap()
}

/// A dispatcher that comes late marks nothing that another has loaded after it.
///
/// Shows C-15, C-19.
async fn a_late_dispatcher_does_not_mark_for_the_next_one(fixture: Fixture) {
    let outbox = fixture.room.transport_outbox();
    let ids = saved(&fixture, 1).await;
    let first = outbox.load_pending(1).await.unwrap();
    fixture.expire_leases().await;
    let second = outbox.load_pending(1).await.unwrap();

    outbox.mark_failed(&first[0], "late", None).await.unwrap();
    let message = outbox.get(&ids[0]).await.unwrap().unwrap();
    assert_eq!(
        (message.state, message.attempts),
        (OutboxState::Processing, 0)
    );

    outbox.mark_dispatched(&second[0]).await.unwrap();
    let message = outbox.get(&ids[0]).await.unwrap().unwrap();
    assert_eq!(message.state, OutboxState::Dispatched);
}

testkit::mount!(
    a_late_dispatcher_does_not_mark_for_the_next_one,
    an_envelope_is_saved_in_the_callers_transaction,
    an_envelope_comes_back_as_it_was,
    a_batch_is_saved_whole_or_not_at_all,
    pending_messages_are_loaded_oldest_first_and_at_most_a_batch,
    a_scheduled_message_is_loaded_when_its_time_has_come,
    a_dispatched_message_says_so_and_when,
    a_failed_message_waits_for_its_retry,
    a_failed_message_is_loaded_again_at_once,
    a_failed_message_comes_before_younger_ones,
    a_poisoned_message_is_given_up,
    an_unknown_id_changes_nothing,
    two_dispatchers_do_not_share_a_message,
    a_lost_lease_marks_nothing,
    a_spoilt_message_does_not_stop_the_batch,
    a_cleanup_takes_only_what_was_dispatched_before,
);
