//! Working a queue by hand: handlers, waiting, and what they log.

use std::time::Duration;

use postroom::{Handled, Inbound, JoinWait, Message, NewJoin, OwnerToken, State};
use testkit::Fixture;

use testkit::logs::catch;

const LEASE: Duration = Duration::from_secs(30);

/// What a future gives back, and the lines that it logs: level, message and fields.
async fn captured<T>(work: impl Future<Output = T>) -> (T, Vec<String>) {
    let logs = catch();
    let result = work.await;
    let lines = logs.events().into_iter();
    let lines = lines.map(|line| format!("{} {} {:?}", line.level, line.message, line.fields));
    (result, lines.collect())
}

/// Shows OBX-104.
async fn a_handler_that_succeeds_acks_and_is_logged_at_info(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let receipt = outbox
        .enqueue(&Message::new("order.created", "canary-payload"))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 1).await.unwrap();

    let (handled, logs) = captured(outbox.handle(owner, &claimed[0], async |message| {
        assert_eq!(message.payload, "canary-payload");
        Ok::<(), String>(())
    }))
    .await;

    assert_eq!(handled.unwrap(), Handled::Done);
    let line = logs
        .iter()
        .find(|line| line.contains("handling"))
        .expect("a log line");
    assert!(
        line.contains("INFO") && line.contains("order.created"),
        "{line}"
    );
    assert!(line.contains(&receipt.message_id.to_string()), "{line}");
    assert!(line.contains(fixture.room.identifier()), "{line}");
    assert!(!logs.concat().contains("canary-payload"));
    assert!(
        outbox
            .get(receipt.work_item_id)
            .await
            .unwrap()
            .unwrap()
            .is_processed()
    );
}

/// Shows OBX-105, OBX-041, C-57.
async fn a_handler_that_fails_is_logged_at_error_and_retried(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let receipt = outbox
        .enqueue(&Message::new("order.created", "canary-payload"))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 1).await.unwrap();

    let work = outbox.handle(owner, &claimed[0], async |_| Err("the bank is closed"));
    let (handled, logs) = captured(work).await;

    assert_eq!(handled.unwrap(), Handled::Retried);
    let line = logs
        .iter()
        .find(|line| line.contains("handler failed"))
        .expect("a log line");
    assert!(
        line.contains("ERROR") && line.contains("the bank is closed"),
        "{line}"
    );
    assert!(line.contains(&receipt.message_id.to_string()), "{line}");
    assert!(!logs.concat().contains("canary-payload"));
    let message = outbox.get(receipt.work_item_id).await.unwrap().unwrap();
    assert_eq!(message.state, State::Ready);
    assert_eq!(
        message.progress.last_error.as_deref(),
        Some("the bank is closed")
    );
    assert_eq!(message.progress.attempt_count, 1);
}

/// Shows OBX-030, C-18.
async fn a_handler_that_outlives_its_lease_changes_nothing(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    outbox
        .enqueue(&Message::new("order.created", ""))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 1).await.unwrap();
    let (late, other) = (fixture.clone(), OwnerToken::new());

    let handled = outbox
        .handle(owner, &claimed[0], async |_| {
            late.expire_leases().await;
            assert_eq!(
                late.room
                    .outbox()
                    .claim(other, LEASE, 1)
                    .await
                    .unwrap()
                    .len(),
                1
            );
            Ok::<(), String>(())
        })
        .await
        .unwrap();

    assert_eq!(handled, Handled::LeaseLost);
    let message = outbox.get(claimed[0].id).await.unwrap().unwrap();
    assert_eq!(message.progress.owner_token, Some(other));
}

/// Shows IBX-110, IBX-111.
async fn inbox_handlers_are_logged_too(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox
        .enqueue(&Inbound::new("stripe", "evt_1", "paid", "canary-payload"))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    let claimed = inbox.claim(owner, LEASE, 1).await.unwrap();
    let (handled, failed) = captured(inbox.handle(owner, &claimed[0], async |_| Err("no"))).await;
    assert_eq!(handled.unwrap(), Handled::Retried);

    fixture.skip_backoff().await;
    let owner = OwnerToken::new();
    let claimed = inbox.claim(owner, LEASE, 1).await.unwrap();
    let work = inbox.handle(owner, &claimed[0], async |_| Ok::<(), String>(()));
    let (handled, succeeded) = captured(work).await;
    assert_eq!(handled.unwrap(), Handled::Done);

    let error = failed
        .iter()
        .find(|line| line.contains("handler failed"))
        .expect("a log line");
    assert!(
        error.contains("ERROR") && error.contains("evt_1") && error.contains("no"),
        "{error}"
    );
    let info = succeeded
        .iter()
        .find(|line| line.contains("handling"))
        .expect("a log line");
    assert!(
        info.contains("INFO") && info.contains("paid") && info.contains("evt_1"),
        "{info}"
    );
    assert!(!failed.concat().contains("canary") && !succeeded.concat().contains("canary"));
}

/// Shows JOIN-073.
async fn decisions_about_a_wait_are_logged(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    joins
        .enqueue_wait(&JoinWait::new(join, "next", "canary-payload"))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    let waits = fixture.room.outbox().claim(owner, LEASE, 1).await.unwrap();

    let (_, logs) = captured(joins.handle_wait(owner, &waits[0])).await;

    let line = logs
        .iter()
        .find(|line| line.contains("handled a join wait"))
        .expect("a log line");
    assert!(
        line.contains("DEBUG") && line.contains("NotReady"),
        "{line}"
    );
    assert!(!logs.concat().contains("canary"));
}

/// Shows OBX-122, IBX-124.
async fn an_idle_queue_is_asked_less_and_less_often(fixture: Fixture) {
    let patience = Duration::from_millis(1200);
    let outbox = fixture.room.outbox();
    let (claimed, logs) =
        captured(outbox.claim_waiting(OwnerToken::new(), LEASE, 10, patience)).await;
    assert!(claimed.unwrap().is_empty());
    // 10, 20, 40, … 500 ms: a steady pace of 10 ms would ask 120 times.
    let polls = logs.iter().filter(|line| line.contains("claimed")).count();
    assert!((2..=10).contains(&polls), "{polls} polls");

    let inbox = fixture.room.inbox();
    let (claimed, logs) =
        captured(inbox.claim_waiting(OwnerToken::new(), LEASE, 10, patience)).await;
    assert!(claimed.unwrap().is_empty());
    let polls = logs.iter().filter(|line| line.contains("claimed")).count();
    assert!((2..=10).contains(&polls), "{polls} polls");
}

/// A lease that has expired while its message got a later due time is in nobody's way; it is freed.
///
/// Shows OBX-053, IBX-072.
async fn an_idle_poll_reaps_expired_leases(fixture: Fixture) {
    let (outbox, inbox) = (fixture.room.outbox(), fixture.room.inbox());
    outbox.enqueue(&Message::new("a", "")).await.unwrap();
    inbox
        .enqueue(&Inbound::new("stripe", "1", "a", ""))
        .await
        .unwrap();
    outbox.claim(OwnerToken::new(), LEASE, 1).await.unwrap();
    inbox.claim(OwnerToken::new(), LEASE, 1).await.unwrap();
    fixture.expire_leases().await;
    let later = match fixture.backend {
        testkit::Backend::Sqlite | testkit::Backend::MySql => "next_attempt_at + 3600000000",
        testkit::Backend::Postgres => "next_attempt_at + interval '1 hour'",
        testkit::Backend::SqlServer => "DATEADD(HOUR, 1, next_attempt_at)",
    };
    for queue in ["outbox", "inbox"] {
        fixture
            .sql(&format!("UPDATE {{{queue}}} SET next_attempt_at = {later}"))
            .await;
        let leased = format!("SELECT count(*) FROM {{{queue}}} WHERE locked_until IS NOT NULL");
        assert_eq!(fixture.number(&leased).await, 1);
    }

    let patience = Duration::from_millis(500);
    assert!(
        outbox
            .claim_waiting(OwnerToken::new(), LEASE, 1, patience)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        inbox
            .claim_waiting(OwnerToken::new(), LEASE, 1, patience)
            .await
            .unwrap()
            .is_empty()
    );

    for queue in ["outbox", "inbox"] {
        let leased = format!("SELECT count(*) FROM {{{queue}}} WHERE locked_until IS NOT NULL");
        assert_eq!(fixture.number(&leased).await, 0);
    }
}

/// Shows OBX-023.
async fn waiting_ends_as_soon_as_a_message_is_there(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let waiting = {
        let outbox = outbox.clone();
        tokio::spawn(async move {
            let patience = Duration::from_secs(60);
            outbox
                .claim_waiting(OwnerToken::new(), LEASE, 10, patience)
                .await
        })
    };
    outbox.enqueue(&Message::new("a", "")).await.unwrap();
    let claimed = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    assert_eq!(claimed.expect("in time").unwrap().unwrap().len(), 1);
}

/// Shows OBX-121, IBX-123.
async fn asking_for_the_doors_again_opens_no_new_connections(fixture: Fixture) {
    for _ in 0..200 {
        fixture.room.outbox().counts().await.unwrap();
        fixture.room.clone().inbox().counts().await.unwrap();
    }
    if fixture.backend == testkit::Backend::Postgres {
        let room = fixture
            .options()
            .worker("w")
            .connections(2)
            .connect()
            .await
            .unwrap();
        let before = fixture
            .number("SELECT count(*) FROM pg_stat_activity")
            .await;
        for _ in 0..50 {
            room.outbox().counts().await.unwrap();
        }
        let after = fixture
            .number("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postroom'")
            .await;
        assert!(after <= before + 2, "{before} {after}");
    }
}

testkit::mount!(
    a_handler_that_succeeds_acks_and_is_logged_at_info,
    a_handler_that_fails_is_logged_at_error_and_retried,
    a_handler_that_outlives_its_lease_changes_nothing,
    inbox_handlers_are_logged_too,
    decisions_about_a_wait_are_logged,
    an_idle_queue_is_asked_less_and_less_often,
    an_idle_poll_reaps_expired_leases,
    waiting_ends_as_soon_as_a_message_is_there,
    asking_for_the_doors_again_opens_no_new_connections,
);
