//! Acking, abandoning, failing, renewing and reaping in the inbox.

use std::time::{Duration, SystemTime};

use postroom::{
    Abandon, ErrorKind, Inbound, Inbox, InboxKeys, InboxMessage, InboxMessageId, InboxState,
    OwnerToken, WorkItemId,
};
use testkit::{Fixture, eventually};

const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// Shows IBX-044, IBX-047, IBX-049.
async fn an_ack_makes_the_message_done_and_ends_the_lease(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (owner, _) = claim(&inbox, &["1", "2"]).await;

    let before = fixture.now().await;
    assert_eq!(inbox.ack(owner, &[id("1")]).await.unwrap(), 1);

    let message = get(&inbox, "1").await;
    assert_eq!(message.state, InboxState::Done);
    assert_eq!(message.progress.owner_token, None);
    assert_eq!(message.progress.locked_until, None);
    assert!(message.progress.processed_at.unwrap() >= before);
    assert_eq!(message.progress.processed_by.as_deref(), Some("tester"));
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {inbox} WHERE message_id = '1'")
            .await,
        0
    );
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {inbox_done} WHERE message_id = '1'")
            .await,
        1
    );
    assert_eq!(get(&inbox, "2").await.progress.owner_token, Some(owner));

    inbox.ack(owner, &[id("2")]).await.unwrap();
    fixture.expire_leases().await;
    inbox.reap().await.unwrap();
    assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);
}

/// Shows IBX-045, IBX-046, IBX-054, IBX-055, IBX-062, IBX-063.
async fn only_the_owner_settles_and_everybody_else_is_ignored(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (owner, leased) = claim(&inbox, &["1"]).await;
    inbox.enqueue(&inbound("free")).await.unwrap();
    let stranger = OwnerToken::new();
    let work_items = [leased[0].work_item_id.unwrap(), WorkItemId::new()];
    let typed = [
        id("1"),
        id("free"),
        id("unknown"),
        InboxMessageId::new("paypal", "1"),
    ];
    let bare = ["1", "free", "unknown", "", "a\0b"];

    for keys in [
        InboxKeys::from(&work_items),
        InboxKeys::from(&typed),
        InboxKeys::from(&bare),
    ] {
        assert_eq!(inbox.ack(stranger, keys).await.unwrap(), 0);
        assert_eq!(
            inbox
                .abandon(stranger, keys, Abandon::default().error("no"))
                .await
                .unwrap(),
            0
        );
        assert_eq!(inbox.fail(stranger, keys, "no").await.unwrap(), 0);
        assert_eq!(inbox.renew(stranger, keys, HOUR).await.unwrap(), 0);
    }

    let message = get(&inbox, "1").await;
    assert_eq!(message, leased[0]);
    assert_eq!(get(&inbox, "free").await.progress.attempt_count, 0);
    assert_eq!(
        inbox.ack(owner, &typed).await.unwrap(),
        1,
        "the owner's call takes what is the owner's"
    );
}

/// Shows IBX-048, IBX-059, IBX-066, C-55.
async fn no_ids_are_nothing_to_do(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (owner, leased) = claim(&inbox, &["1"]).await;
    let (work_items, typed, bare): ([WorkItemId; 0], [InboxMessageId; 0], [&str; 0]) = ([], [], []);

    for keys in [
        InboxKeys::from(&work_items),
        InboxKeys::from(&typed),
        InboxKeys::from(&bare),
    ] {
        assert_eq!(inbox.ack(owner, keys).await.unwrap(), 0);
        assert_eq!(
            inbox
                .abandon(owner, keys, Abandon::default())
                .await
                .unwrap(),
            0
        );
        assert_eq!(inbox.fail(owner, keys, "no").await.unwrap(), 0);
        assert_eq!(inbox.renew(owner, keys, HOUR).await.unwrap(), 0);
        assert_eq!(inbox.revive(keys).await.unwrap(), 0);
        assert_eq!(inbox.purge(keys).await.unwrap(), 0);
    }

    assert_eq!(get(&inbox, "1").await, leased[0]);
}

/// Shows C-55.
async fn an_id_given_twice_settles_once(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for name in ["work item", "typed", "bare"] {
        let (owner, leased) = claim(&inbox, &[name]).await;
        let work_items = [leased[0].work_item_id.unwrap(); 3];
        let typed = [id(name), id(name)];
        let bare = [name, name, name];
        let keys = match name {
            "work item" => InboxKeys::from(&work_items),
            "typed" => InboxKeys::from(&typed),
            _ => InboxKeys::from(&bare),
        };

        assert_eq!(inbox.renew(owner, keys, HOUR).await.unwrap(), 1, "{name}");
        assert_eq!(
            inbox
                .abandon(owner, keys, Abandon::default())
                .await
                .unwrap(),
            1,
            "{name}"
        );
        assert_eq!(get(&inbox, name).await.progress.attempt_count, 1, "{name}");

        let owner = claim_again(&fixture).await;
        assert_eq!(inbox.fail(owner, keys, "no").await.unwrap(), 1, "{name}");
        assert_eq!(get(&inbox, name).await.state, InboxState::Dead, "{name}");
        assert_eq!(inbox.revive(keys).await.unwrap(), 1, "{name}");

        let owner = claim_again(&fixture).await;
        assert_eq!(inbox.ack(owner, keys).await.unwrap(), 1, "{name}");
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_done}").await, 3);
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_dead}").await, 0);
}

/// Shows C-55.
async fn ten_thousand_ids_in_one_call_are_fine(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let names: Vec<String> = (0..10_000).map(|number| format!("evt {number}")).collect();
    let held = ["evt 0", "evt 5000", "evt 9999"];
    let typed: Vec<_> = names.iter().map(|name| id(name)).collect();
    let bare: Vec<&str> = names.iter().map(String::as_str).collect();

    let (owner, leased) = claim(&inbox, &held).await;
    let mut work_items: Vec<_> = (0..10_000).map(|_| WorkItemId::new()).collect();
    for (place, message) in [0, 5000, 9999].into_iter().zip(&leased) {
        work_items[place] = message.work_item_id.unwrap();
    }
    assert_eq!(
        inbox
            .abandon(owner, &work_items, Abandon::default())
            .await
            .unwrap(),
        3
    );
    let owner = claim_again(&fixture).await;
    assert_eq!(
        inbox
            .abandon(owner, &typed, Abandon::default())
            .await
            .unwrap(),
        3
    );
    let owner = claim_again(&fixture).await;
    assert_eq!(inbox.fail(owner, &bare, "no").await.unwrap(), 3);
    assert_eq!(inbox.revive(&typed).await.unwrap(), 3);
    let owner = claim_again(&fixture).await;
    assert_eq!(inbox.ack(owner, &work_items).await.unwrap(), 3);
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_done}").await, 3);
}

/// Shows IBX-045, C-35.
async fn a_bare_id_settles_every_sources_message_that_the_token_holds_and_no_other(
    fixture: Fixture,
) {
    let inbox = fixture.room.inbox();
    for source in ["stripe", "paypal", "bank"] {
        inbox
            .enqueue(&Inbound::new(source, "1", "topic", source))
            .await
            .unwrap();
    }
    let (two, one) = (OwnerToken::new(), OwnerToken::new());
    let of_two = inbox.claim(two, LEASE, 2).await.unwrap();
    let of_one = inbox.claim(one, LEASE, 1).await.unwrap();

    assert_eq!(inbox.ack(one, &["1"]).await.unwrap(), 1);

    assert_eq!(
        inbox.get(&of_one[0].id).await.unwrap().unwrap().state,
        InboxState::Done
    );
    for message in &of_two {
        assert_eq!(inbox.get(&message.id).await.unwrap().unwrap(), *message);
    }
    assert_eq!(inbox.fail(two, &["1"], "no").await.unwrap(), 2);
    for message in &of_two {
        assert_eq!(
            inbox.get(&message.id).await.unwrap().unwrap().state,
            InboxState::Dead
        );
    }
}

/// Shows IBX-045, C-35.
async fn a_typed_id_settles_its_own_sources_message_only(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox
        .enqueue(&Inbound::new("stripe", "1", "topic", ""))
        .await
        .unwrap();
    inbox
        .enqueue(&Inbound::new("paypal", "1", "topic", ""))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    assert_eq!(inbox.claim(owner, LEASE, 2).await.unwrap().len(), 2);

    assert_eq!(
        inbox
            .ack(owner, &[InboxMessageId::new("paypal", "1")])
            .await
            .unwrap(),
        1
    );

    let other = inbox
        .get(&InboxMessageId::new("stripe", "1"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(other.progress.owner_token, Some(owner));
}

/// Shows IBX-050, IBX-051, C-38.
async fn an_abandon_ends_the_lease_counts_and_leaves_the_message_in_processing(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (owner, leased) = claim(&inbox, &["1"]).await;

    assert_eq!(
        inbox
            .abandon(owner, &[id("1")], Abandon::default())
            .await
            .unwrap(),
        1
    );

    let message = get(&inbox, "1").await;
    assert_eq!(message.state, InboxState::Processing);
    assert_eq!(message.progress.owner_token, None);
    assert_eq!(message.progress.locked_until, None);
    assert_eq!(message.progress.attempt_count, 1);
    assert_eq!(
        (message.due_time, message.first_seen),
        (leased[0].due_time, leased[0].first_seen)
    );
    let row = "SELECT count(*) FROM {inbox} WHERE owner_token IS NULL AND locked_until IS NULL AND attempt_count = 1";
    assert_eq!(fixture.number(row).await, 1);
    assert_eq!(
        inbox.ack(owner, &[id("1")]).await.unwrap(),
        0,
        "the lease is over"
    );
}

/// Shows IBX-051, IBX-052, C-09.
async fn the_backoff_doubles_exactly_until_it_is_a_minute(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox.enqueue(&inbound("1")).await.unwrap();
    for (attempt, seconds) in (1..).zip([2, 4, 8, 16, 32, 60, 60, 60]) {
        let owner = claim_again(&fixture).await;
        inbox
            .abandon(owner, &[id("1")], Abandon::default())
            .await
            .unwrap();
        assert_waits(&inbox, attempt, Duration::from_secs(seconds)).await;
    }
    for attempt in [63, 64, 100, 1_000_000] {
        let owner = claim_again(&fixture).await;
        fixture
            .sql(&format!("UPDATE {{inbox}} SET attempt_count = {attempt}"))
            .await;
        inbox
            .abandon(owner, &[id("1")], Abandon::default())
            .await
            .unwrap();
        assert_waits(&inbox, attempt + 1, Duration::from_secs(60)).await;
    }
}

/// Shows IBX-053.
async fn a_delay_is_kept_exactly(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox.enqueue(&inbound("1")).await.unwrap();
    let delays = [
        Duration::from_millis(1),
        Duration::from_secs(7),
        HOUR,
        Duration::from_micros(1500),
    ];
    for (attempt, delay) in (1..).zip(delays) {
        let owner = claim_again(&fixture).await;
        inbox
            .abandon(owner, &[id("1")], Abandon::after(delay))
            .await
            .unwrap();
        assert_waits(&inbox, attempt, delay).await;
    }
}

/// Shows IBX-056.
async fn an_abandoned_message_comes_back_when_the_delay_is_over(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (owner, _) = claim(&inbox, &["1"]).await;
    inbox
        .abandon(
            owner,
            &[id("1")],
            Abandon::after(Duration::from_millis(700)),
        )
        .await
        .unwrap();
    let next = get(&inbox, "1").await.progress.next_attempt_at.unwrap();

    let (inbox, fixture) = (&inbox, &fixture);
    let claimed = eventually(|| async move {
        let claimed = inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
        assert!(claimed.is_empty() || fixture.now().await >= next);
        (!claimed.is_empty()).then_some(claimed)
    })
    .await;
    assert_eq!(claimed[0].id, id("1"));
    assert_eq!(claimed[0].progress.attempt_count, 1);
}

/// Shows IBX-057.
async fn an_abandon_keeps_the_last_error(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox.enqueue(&inbound("1")).await.unwrap();
    let errors = [
        (Abandon::default(), None),
        (Abandon::default().error("first"), Some("first")),
        (Abandon::default(), Some("first")),
        (Abandon::default().error(""), Some("first")),
        (Abandon::after(HOUR).error("second"), Some("second")),
    ];
    for (how, expected) in errors {
        let owner = claim_again(&fixture).await;
        inbox.abandon(owner, &[id("1")], how).await.unwrap();
        assert_eq!(
            get(&inbox, "1").await.progress.last_error.as_deref(),
            expected
        );
    }
    let owner = claim_again(&fixture).await;
    inbox
        .abandon(
            owner,
            &[id("1")],
            Abandon::default().error("é".repeat(10_000)),
        )
        .await
        .unwrap();
    let stored = get(&inbox, "1").await.progress.last_error.unwrap();
    assert!(
        stored.len() <= 2048 && stored.starts_with("éé"),
        "{} bytes",
        stored.len()
    );
}

/// Shows IBX-058.
async fn a_delay_of_nothing_is_out_of_range(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (owner, leased) = claim(&inbox, &["1"]).await;
    for delay in [Duration::ZERO, Duration::from_nanos(999), Duration::MAX] {
        let error = inbox
            .abandon(owner, &[id("1")], Abandon::after(delay))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "delay" });
    }
    let nothing: [WorkItemId; 0] = [];
    let error = inbox
        .abandon(owner, &nothing, Abandon::after(Duration::ZERO))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "delay" });
    assert_eq!(get(&inbox, "1").await, leased[0]);
}

/// Shows IBX-060, IBX-061, IBX-064, IBX-065.
async fn a_fail_makes_the_message_dead_and_keeps_the_error(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (owner, _) = claim(&inbox, &["1", "2"]).await;

    assert_eq!(
        inbox.fail(owner, &[id("1")], "it is broken").await.unwrap(),
        1
    );

    let message = get(&inbox, "1").await;
    assert_eq!(message.state, InboxState::Dead);
    assert_eq!(message.progress.last_error.as_deref(), Some("it is broken"));
    assert_eq!(message.progress.owner_token, None);
    assert_eq!(message.progress.locked_until, None);
    assert_eq!(message.progress.attempt_count, 0);
    assert_eq!(message.progress.processed_by.as_deref(), Some("tester"));
    let dead = "SELECT count(*) FROM {inbox_dead} WHERE last_error = 'it is broken'";
    assert_eq!(fixture.number(dead).await, 1);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {inbox} WHERE message_id = '1'")
            .await,
        0
    );
    assert_eq!(get(&inbox, "2").await.progress.owner_token, Some(owner));

    inbox.fail(owner, &[id("2")], "too").await.unwrap();
    fixture.expire_leases().await;
    inbox.reap().await.unwrap();
    assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);
}

/// An error is a `&str`, which cannot be null. The empty one is allowed and says nothing.
///
/// Shows IBX-067, C-55.
async fn a_fail_takes_any_error_text(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (owner, _) = claim(&inbox, &["empty", "nul", "long"]).await;
    inbox.fail(owner, &[id("empty")], "").await.unwrap();
    inbox.fail(owner, &[id("nul")], "a\0b").await.unwrap();
    inbox
        .fail(owner, &[id("long")], &"x".repeat(100_000))
        .await
        .unwrap();

    assert_eq!(get(&inbox, "empty").await.state, InboxState::Dead);
    assert_eq!(get(&inbox, "empty").await.progress.last_error, None);
    assert_eq!(
        get(&inbox, "nul").await.progress.last_error.as_deref(),
        Some("a\u{fffd}b")
    );
    assert!(get(&inbox, "long").await.progress.last_error.unwrap().len() <= 2048);
}

/// Shows IBX-068, IBX-069, IBX-070, C-20, C-38.
async fn a_reap_frees_expired_leases_and_no_others(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (_, _) = claim(&inbox, &["expired 1", "expired 2"]).await;
    fixture.expire_leases().await;
    let (live, leased) = claim_only(&inbox, "live").await;
    inbox.enqueue(&inbound("free")).await.unwrap();
    // The others were given leases of a microsecond, which is over when the clock has moved on.
    let given = fixture.now().await;
    eventually(async || (fixture.now().await > given).then_some(())).await;

    assert_eq!(inbox.reap().await.unwrap(), 2);

    for name in ["expired 1", "expired 2"] {
        let message = get(&inbox, name).await;
        assert_eq!(message.state, InboxState::Processing);
        assert_eq!(message.progress.owner_token, None);
        assert_eq!(message.progress.locked_until, None);
        assert_eq!(message.progress.attempt_count, 0);
    }
    let freed = "SELECT count(*) FROM {inbox} WHERE owner_token IS NULL AND locked_until IS NULL";
    assert_eq!(fixture.number(freed).await, 3);
    assert_eq!(get(&inbox, "live").await, leased);
    assert_eq!(inbox.reap().await.unwrap(), 0);
    assert_eq!(
        inbox
            .claim(OwnerToken::new(), LEASE, 10)
            .await
            .unwrap()
            .len(),
        3
    );
    assert_eq!(inbox.ack(live, &[id("live")]).await.unwrap(), 1);
}

/// Shows IBX-070.
async fn a_reaped_message_still_waits_for_its_due_time(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    claim(&inbox, &["1"]).await;
    inbox
        .enqueue(&inbound("1").due_at(SystemTime::now() + HOUR))
        .await
        .unwrap();
    fixture.expire_leases().await;

    assert_eq!(inbox.reap().await.unwrap(), 1);

    assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);
    fixture.skip_backoff().await;
    assert_eq!(
        inbox
            .claim(OwnerToken::new(), LEASE, 10)
            .await
            .unwrap()
            .len(),
        1
    );
}

/// Shows IBX-071.
async fn a_reap_leaves_done_and_dead_messages_alone(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (owner, _) = claim(&inbox, &["done", "dead"]).await;
    inbox.ack(owner, &[id("done")]).await.unwrap();
    inbox.fail(owner, &[id("dead")], "no").await.unwrap();
    let before = (get(&inbox, "done").await, get(&inbox, "dead").await);

    assert_eq!(inbox.reap().await.unwrap(), 0);

    assert_eq!(
        (get(&inbox, "done").await, get(&inbox, "dead").await),
        before
    );
}

/// Shows IBX-045, IBX-046, C-18.
async fn a_late_ack_counts_only_while_nobody_has_taken_the_lease_away(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (expired, _) = claim(&inbox, &["expired"]).await;
    fixture.expire_leases().await;
    assert_eq!(
        inbox.ack(expired, &[id("expired")]).await.unwrap(),
        1,
        "nobody else has it"
    );

    let (reaped, _) = claim(&inbox, &["reaped"]).await;
    fixture.expire_leases().await;
    inbox.reap().await.unwrap();
    assert_eq!(inbox.ack(reaped, &[id("reaped")]).await.unwrap(), 0);
    assert_eq!(
        inbox
            .abandon(reaped, &[id("reaped")], Abandon::default())
            .await
            .unwrap(),
        0
    );
    assert_eq!(inbox.fail(reaped, &[id("reaped")], "no").await.unwrap(), 0);
    assert_eq!(get(&inbox, "reaped").await.progress.attempt_count, 0);

    let first = claim_again(&fixture).await;
    fixture.expire_leases().await;
    let second = claim_again(&fixture).await;
    assert_eq!(inbox.ack(first, &[id("reaped")]).await.unwrap(), 0);
    assert_eq!(inbox.ack(second, &[id("reaped")]).await.unwrap(), 1);
}

/// An extension: no requirement asks for it.
async fn a_renewal_extends_a_lease_that_is_still_held(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (owner, _) = claim(&inbox, &["1"]).await;
    let before = fixture.now().await;
    assert_eq!(inbox.renew(owner, &[id("1")], HOUR).await.unwrap(), 1);
    assert!(get(&inbox, "1").await.progress.locked_until.unwrap() >= before + HOUR);

    fixture.expire_leases().await;
    assert_eq!(
        inbox.renew(owner, &[id("1")], HOUR).await.unwrap(),
        0,
        "it was too late"
    );
    let error = inbox
        .renew(owner, &[id("1")], Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "lease" });
}

/// Shows IBX-102.
async fn a_batch_that_the_database_refuses_half_way_changes_nothing(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (owner, leased) = claim(&inbox, &["1", "2", "3"]).await;
    let work_items: Vec<_> = leased
        .iter()
        .filter_map(|message| message.work_item_id)
        .collect();
    let state = || async {
        (
            get(&inbox, "1").await,
            get(&inbox, "2").await,
            get(&inbox, "3").await,
        )
    };
    let before = state().await;

    fixture.refuse("DELETE", "inbox").await;
    assert_eq!(
        inbox.ack(owner, &work_items).await.unwrap_err().kind(),
        ErrorKind::Database
    );
    assert_eq!(
        inbox
            .fail(owner, &work_items, "no")
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Database
    );
    assert_eq!(state().await, before);
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_done}").await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_dead}").await, 0);

    fixture.allow("DELETE").await;
    assert_eq!(inbox.ack(owner, &work_items).await.unwrap(), 3);
}

/// Everybody enqueues, claims, settles, marks, revives and reaps the same few messages in any order.
///
/// Shows IBX-104, IBX-105.
async fn a_storm_of_overlapping_calls_surfaces_no_error(fixture: Fixture) {
    let rooms = [fixture.room.clone(), fixture.again().await];
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..12_usize {
        let inbox = rooms[task % 2].inbox();
        tasks.spawn(async move {
            for round in 0..15_usize {
                let mut ids: Vec<_> = (0..8).map(|number| id(&number.to_string())).collect();
                ids.rotate_left((task * 5 + round) % 8);
                if task % 2 == 0 {
                    ids.reverse();
                }
                for id in &ids[..3] {
                    inbox.enqueue(&inbound(&id.message_id)).await.unwrap();
                    inbox.already_processed_with_hash(id, &[1]).await.unwrap();
                }
                let owner = OwnerToken::new();
                inbox.claim(owner, LEASE, 3).await.unwrap();
                match (task + round) % 5 {
                    0 => inbox.ack(owner, &ids).await.unwrap(),
                    1 => inbox
                        .abandon(owner, &ids, Abandon::after(Duration::from_micros(1)))
                        .await
                        .unwrap(),
                    2 => inbox.fail(owner, &ids, "no").await.unwrap(),
                    3 => usize::from(inbox.mark_dead(&ids[0]).await.unwrap()),
                    _ => inbox.reap().await.unwrap().try_into().unwrap(),
                };
                inbox.revive(&ids).await.unwrap();
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
    let counts = fixture.room.inbox().counts().await.unwrap();
    assert_eq!(counts.seen, 0);
    assert_eq!(
        counts.processing + counts.done + counts.dead,
        8,
        "{counts:?}"
    );
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_seen}").await, 8);
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

/// Enqueues these messages and leases them.
async fn claim(inbox: &Inbox, message_ids: &[&str]) -> (OwnerToken, Vec<InboxMessage>) {
    for message_id in message_ids {
        inbox.enqueue(&inbound(message_id)).await.unwrap();
    }
    let owner = OwnerToken::new();
    let claimed = inbox.claim(owner, LEASE, message_ids.len()).await.unwrap();
    assert_eq!(claimed.len(), message_ids.len());
    (owner, claimed)
}

/// Leases one new message while others are ready too.
async fn claim_only(inbox: &Inbox, message_id: &str) -> (OwnerToken, InboxMessage) {
    let owner = OwnerToken::new();
    inbox.enqueue(&inbound(message_id)).await.unwrap();
    let claimed = inbox.claim(owner, LEASE, 10).await.unwrap();
    let (mine, others): (Vec<_>, Vec<_>) = claimed
        .into_iter()
        .partition(|message| message.id == id(message_id));
    for other in others {
        inbox
            .renew(owner, &[other.id], Duration::from_micros(1))
            .await
            .unwrap();
    }
    (owner, mine.into_iter().next().unwrap())
}

/// Leases everything, whatever backoff it is in.
async fn claim_again(fixture: &Fixture) -> OwnerToken {
    fixture.skip_backoff().await;
    let owner = OwnerToken::new();
    let claimed = fixture.room.inbox().claim(owner, LEASE, 100).await.unwrap();
    assert!(!claimed.is_empty());
    owner
}

async fn assert_waits(inbox: &Inbox, attempt: u32, delay: Duration) {
    let progress = get(inbox, "1").await.progress;
    assert_eq!(progress.attempt_count, attempt);
    let waits = progress
        .next_attempt_at
        .unwrap()
        .duration_since(progress.last_attempt_at.unwrap())
        .unwrap();
    assert_eq!(waits, delay);
}

testkit::mount!(
    an_ack_makes_the_message_done_and_ends_the_lease,
    only_the_owner_settles_and_everybody_else_is_ignored,
    no_ids_are_nothing_to_do,
    an_id_given_twice_settles_once,
    ten_thousand_ids_in_one_call_are_fine,
    a_bare_id_settles_every_sources_message_that_the_token_holds_and_no_other,
    a_typed_id_settles_its_own_sources_message_only,
    an_abandon_ends_the_lease_counts_and_leaves_the_message_in_processing,
    the_backoff_doubles_exactly_until_it_is_a_minute,
    a_delay_is_kept_exactly,
    an_abandoned_message_comes_back_when_the_delay_is_over,
    an_abandon_keeps_the_last_error,
    a_delay_of_nothing_is_out_of_range,
    a_fail_makes_the_message_dead_and_keeps_the_error,
    a_fail_takes_any_error_text,
    a_reap_frees_expired_leases_and_no_others,
    a_reaped_message_still_waits_for_its_due_time,
    a_reap_leaves_done_and_dead_messages_alone,
    a_late_ack_counts_only_while_nobody_has_taken_the_lease_away,
    a_renewal_extends_a_lease_that_is_still_held,
    a_batch_that_the_database_refuses_half_way_changes_nothing,
    a_storm_of_overlapping_calls_surfaces_no_error,
);
