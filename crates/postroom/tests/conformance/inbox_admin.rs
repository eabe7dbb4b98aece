//! Looking into the inbox, and moving messages by hand: get, list, counts, marks, revive, purge and
//! cleanup.

use std::time::Duration;

use postroom::{
    Abandon, Arrival, ErrorKind, Inbound, Inbox, InboxCounts, InboxMessage, InboxMessageId,
    InboxState, List, OwnerToken,
};
use testkit::{Backend, Fixture};

const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Every way in which a message can stand in the inbox.
const STANDINGS: [&str; 9] = [
    "seen",
    "marked processing",
    "queued",
    "leased",
    "backoff",
    "acked",
    "marked done",
    "failed",
    "marked dead",
];

/// Shows C-37.
async fn every_mark_on_every_standing_does_what_the_table_says(fixture: Fixture) {
    use InboxState::{Dead, Done, Processing, Seen};
    let inbox = fixture.room.inbox();
    for mark in ["processing", "processed", "dead"] {
        for standing in STANDINGS {
            let id = InboxMessageId::new(mark, standing);
            let owner = bring(&inbox, &id, standing).await;
            let before = inbox.get(&id).await.unwrap().unwrap();

            let changed = match mark {
                "processing" => inbox.mark_processing(&id).await,
                "processed" => inbox.mark_processed(&id).await,
                _ => inbox.mark_dead(&id).await,
            }
            .unwrap();

            let after = inbox.get(&id).await.unwrap().unwrap();
            let expected = match (mark, before.state) {
                (_, Done) => Done,
                ("processing", Seen) => Processing,
                ("processing", same) => same,
                ("processed", _) => Done,
                (_, _) => Dead,
            };
            assert_eq!(after.state, expected, "{id}");
            assert_eq!(changed, after.state != before.state, "{id}");
            if changed {
                assert_eq!(after.progress.owner_token, None, "{id}: the lease is void");
                assert_eq!(after.progress.locked_until, None, "{id}: the lease is void");
            } else {
                assert_eq!(after, before, "{id}");
            }
            let settled = inbox.ack(owner, std::slice::from_ref(&id)).await.unwrap();
            assert_eq!(
                settled,
                usize::from(standing == "leased" && !changed),
                "{id}"
            );
        }
    }
}

/// Shows C-37.
async fn a_mark_on_an_unknown_message_does_nothing(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let id = InboxMessageId::new("stripe", "unknown");
    assert!(!inbox.mark_processing(&id).await.unwrap());
    assert!(!inbox.mark_processed(&id).await.unwrap());
    assert!(!inbox.mark_dead(&id).await.unwrap());
    assert_eq!(inbox.get(&id).await.unwrap(), None);
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_seen}").await, 0);
}

/// Shows C-37.
async fn a_mark_checks_its_names(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let long = "x".repeat(256);
    for (source, id, param) in [
        ("", "1", "source"),
        ("stripe", "", "message_id"),
        (&*long, "1", "source"),
        ("stripe", "\0", "message_id"),
    ] {
        let id = InboxMessageId::new(source, id);
        for error in [
            inbox.mark_processing(&id).await.unwrap_err(),
            inbox.mark_processed(&id).await.unwrap_err(),
            inbox.mark_dead(&id).await.unwrap_err(),
            inbox.get(&id).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument { param });
        }
    }
}

/// Shows C-37.
async fn a_mark_is_for_one_source_only(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (stripe, paypal) = (
        InboxMessageId::new("stripe", "1"),
        InboxMessageId::new("paypal", "1"),
    );
    bring(&inbox, &stripe, "queued").await;
    bring(&inbox, &paypal, "queued").await;
    inbox.mark_processed(&stripe).await.unwrap();
    assert_eq!(
        inbox.get(&paypal).await.unwrap().unwrap().state,
        InboxState::Processing
    );
}

/// Shows IBX-029, C-36, C-39.
async fn a_message_marked_dead_before_it_was_enqueued_can_still_get_its_content(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let id = InboxMessageId::new("stripe", "1");
    bring(&inbox, &id, "marked dead").await;

    let accepted = inbox
        .enqueue(&Inbound::new("stripe", "1", "topic", "content"))
        .await
        .unwrap();

    assert_eq!(accepted.arrival, Arrival::Dead);
    assert_eq!(
        inbox.get(&id).await.unwrap().unwrap().state,
        InboxState::Dead
    );
    assert_eq!(inbox.revive(&[id]).await.unwrap(), 1);
    let claimed = inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
    assert_eq!(claimed[0].payload.as_deref(), Some("content"));
}

/// Shows C-35.
async fn get_shows_a_message_in_every_standing(fixture: Fixture) {
    use InboxState::{Dead, Done, Processing, Seen};
    let inbox = fixture.room.inbox();
    let states = [
        Seen, Processing, Processing, Processing, Processing, Done, Done, Dead, Dead,
    ];
    for (standing, state) in STANDINGS.into_iter().zip(states) {
        let id = InboxMessageId::new("stripe", standing);
        bring(&inbox, &id, standing).await;
        let message = inbox.get(&id).await.unwrap().unwrap();
        assert_eq!((&message.id, message.state), (&id, state));
        let was_enqueued = !standing.starts_with("marked") && standing != "seen";
        assert_eq!(
            message.topic.as_deref(),
            was_enqueued.then_some("topic"),
            "{standing}"
        );
        assert_eq!(
            message.payload.as_deref(),
            was_enqueued.then_some("payload"),
            "{standing}"
        );
        let by_id_alone = inbox.get_bare(standing).await.unwrap();
        assert_eq!(by_id_alone, message);
    }
    assert_eq!(
        inbox
            .get(&InboxMessageId::new("stripe", "unknown"))
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        inbox
            .get(&InboxMessageId::new("paypal", "seen"))
            .await
            .unwrap(),
        None
    );
}

/// Shows C-35.
async fn a_bare_id_that_is_unknown_or_ambiguous_is_an_error(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let unknown = inbox.get_bare("1").await.unwrap_err();
    assert_eq!(
        unknown.kind(),
        ErrorKind::NotFound {
            what: "inbox message"
        }
    );

    bring(&inbox, &InboxMessageId::new("stripe", "1"), "queued").await;
    assert_eq!(inbox.get_bare("1").await.unwrap().id.source, "stripe");

    for source in ["paypal", "bank"] {
        bring(&inbox, &InboxMessageId::new(source, "1"), "seen").await;
        let ambiguous = inbox.get_bare("1").await.unwrap_err();
        assert_eq!(
            ambiguous.kind(),
            ErrorKind::Ambiguous {
                param: "message_id"
            }
        );
    }
    let empty = inbox.get_bare("").await.unwrap_err();
    assert_eq!(
        empty.kind(),
        ErrorKind::InvalidArgument {
            param: "message_id"
        }
    );
}

/// An extension: no requirement asks for it.
async fn a_list_shows_one_state_page_by_page(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for number in 0..7 {
        let topic = if number % 2 == 0 { "even" } else { "odd" };
        inbox
            .enqueue(&Inbound::new("stripe", number.to_string(), topic, ""))
            .await
            .unwrap();
    }
    let owner = OwnerToken::new();
    inbox.claim(owner, LEASE, 3).await.unwrap();
    bring(&inbox, &InboxMessageId::new("stripe", "dead"), "failed").await;
    bring(&inbox, &InboxMessageId::new("stripe", "done"), "acked").await;
    bring(&inbox, &InboxMessageId::new("stripe", "seen"), "seen").await;

    let names = |messages: Vec<InboxMessage>| -> Vec<String> {
        messages
            .into_iter()
            .map(|message| message.id.message_id)
            .collect()
    };
    let all = inbox
        .list(&List::new(InboxState::Processing))
        .await
        .unwrap();
    assert_eq!(names(all.clone()), ["0", "1", "2", "3", "4", "5", "6"]);
    let page = List::new(InboxState::Processing).limit(3);
    assert_eq!(names(inbox.list(&page).await.unwrap()), ["0", "1", "2"]);
    let next = page.clone().after(all[2].work_item_id.unwrap());
    assert_eq!(names(inbox.list(&next).await.unwrap()), ["3", "4", "5"]);
    let odd = List::new(InboxState::Processing).topic("odd");
    assert_eq!(names(inbox.list(&odd).await.unwrap()), ["1", "3", "5"]);
    assert_eq!(
        names(inbox.list(&List::new(InboxState::Dead)).await.unwrap()),
        ["dead"]
    );
    assert_eq!(
        names(inbox.list(&List::new(InboxState::Done)).await.unwrap()),
        ["done"]
    );
    assert_eq!(
        names(inbox.list(&List::new(InboxState::Seen)).await.unwrap()),
        ["seen"]
    );
    for standing in ["marked processing", "marked done"] {
        bring(&inbox, &InboxMessageId::new("stripe", standing), standing).await;
    }
    let done = List::new(InboxState::Done);
    assert_eq!(
        names(inbox.list(&done).await.unwrap()),
        ["marked done", "done"]
    );
    let processing = inbox
        .list(&List::new(InboxState::Processing))
        .await
        .unwrap();
    assert_eq!(
        (processing.len(), processing[0].id.message_id.as_str()),
        (8, "marked processing")
    );
    let paged = inbox
        .list(&done.after(processing[1].work_item_id.unwrap()))
        .await
        .unwrap();
    assert_eq!(
        names(paged),
        ["done"],
        "what was never enqueued has no work item to page by"
    );
    for limit in [0, 10_001] {
        let error = inbox
            .list(&List::new(InboxState::Dead).limit(limit))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "limit" });
    }
}

/// An extension: no requirement asks for it.
async fn counts_tell_how_many_stand_where(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    assert_eq!(inbox.counts().await.unwrap(), InboxCounts::default());
    for standing in STANDINGS {
        bring(&inbox, &InboxMessageId::new("stripe", standing), standing).await;
        bring(&inbox, &InboxMessageId::new("paypal", standing), standing).await;
    }
    let counts = inbox.counts().await.unwrap();
    assert_eq!(
        counts,
        InboxCounts {
            seen: 2,
            processing: 8,
            done: 4,
            dead: 4
        }
    );
}

/// Shows C-39.
async fn a_revived_message_is_ready_with_a_fresh_budget(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let id = InboxMessageId::new("stripe", "1");
    bring(&inbox, &id, "backoff").await;
    fixture.skip_backoff().await;
    let owner = OwnerToken::new();
    inbox.claim(owner, LEASE, 1).await.unwrap();
    inbox
        .fail(owner, std::slice::from_ref(&id), "broken")
        .await
        .unwrap();

    assert_eq!(inbox.revive(std::slice::from_ref(&id)).await.unwrap(), 1);

    let message = inbox.get(&id).await.unwrap().unwrap();
    assert_eq!(message.state, InboxState::Processing);
    assert_eq!(message.progress.attempt_count, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_dead}").await, 0);
    let owner = OwnerToken::new();
    assert_eq!(inbox.claim(owner, LEASE, 10).await.unwrap().len(), 1);
    assert_eq!(inbox.ack(owner, &[id]).await.unwrap(), 1);
}

/// Shows C-37, C-39.
async fn only_dead_messages_are_revived(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for standing in STANDINGS {
        let id = InboxMessageId::new("stripe", standing);
        bring(&inbox, &id, standing).await;
        let before = inbox.get(&id).await.unwrap().unwrap();

        let revived = inbox.revive(std::slice::from_ref(&id)).await.unwrap();

        let after = inbox.get(&id).await.unwrap().unwrap();
        match standing {
            "failed" => assert_eq!((revived, after.state), (1, InboxState::Processing)),
            "marked dead" => assert_eq!(
                (revived, after.state),
                (1, InboxState::Seen),
                "it has no content"
            ),
            _ => assert_eq!((revived, after), (0, before), "{standing}"),
        }
    }
    assert_eq!(inbox.revive(&["unknown"]).await.unwrap(), 0);
}

/// Shows C-35.
async fn a_bare_id_revives_and_purges_every_sources_dead_message(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for source in ["stripe", "paypal"] {
        bring(&inbox, &InboxMessageId::new(source, "1"), "failed").await;
        bring(&inbox, &InboxMessageId::new(source, "2"), "failed").await;
    }
    bring(&inbox, &InboxMessageId::new("bank", "1"), "acked").await;
    assert_eq!(inbox.revive(&["1"]).await.unwrap(), 2);
    assert_eq!(inbox.purge(&["2"]).await.unwrap(), 2);
    let counts = inbox.counts().await.unwrap();
    assert_eq!(
        counts,
        InboxCounts {
            seen: 0,
            processing: 2,
            done: 1,
            dead: 0
        }
    );
}

/// An extension: no requirement asks for it.
async fn a_purge_deletes_dead_messages_only_and_forgets_them(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for standing in STANDINGS {
        let id = InboxMessageId::new("stripe", standing);
        bring(&inbox, &id, standing).await;
        let dead = matches!(standing, "failed" | "marked dead");
        assert_eq!(
            inbox.purge(std::slice::from_ref(&id)).await.unwrap(),
            u64::from(dead),
            "{standing}"
        );
        assert_eq!(inbox.get(&id).await.unwrap().is_none(), dead, "{standing}");
    }
    let again = inbox
        .enqueue(&Inbound::new("stripe", "failed", "topic", ""))
        .await
        .unwrap();
    assert_eq!(again.arrival, Arrival::New);
}

/// An extension: no requirement asks for it.
async fn a_purge_by_age_spares_what_died_lately(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    bring(&inbox, &InboxMessageId::new("stripe", "old"), "failed").await;
    fixture.age("inbox_dead", "processed_at", DAY).await;
    bring(&inbox, &InboxMessageId::new("stripe", "young"), "failed").await;
    bring(&inbox, &InboxMessageId::new("stripe", "done"), "acked").await;

    assert_eq!(inbox.purge_older_than(HOUR).await.unwrap(), 1);
    assert_eq!(
        inbox
            .get(&InboxMessageId::new("stripe", "old"))
            .await
            .unwrap(),
        None
    );
    fixture.age("inbox_dead", "processed_at", HOUR).await;
    assert_eq!(inbox.purge_older_than(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(
        inbox.counts().await.unwrap(),
        InboxCounts {
            done: 1,
            ..InboxCounts::default()
        }
    );
}

/// Shows IBX-098, IBX-099, C-47.
async fn a_cleanup_forgets_old_done_messages_and_nothing_else(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for standing in STANDINGS {
        bring(&inbox, &InboxMessageId::new("stripe", standing), standing).await;
    }
    fixture.age("inbox_seen", "first_seen", 40 * DAY).await;
    fixture.age("inbox_seen", "last_seen", 40 * DAY).await;
    fixture.age("inbox_done", "processed_at", 40 * DAY).await;
    fixture.age("inbox_dead", "processed_at", 40 * DAY).await;

    assert_eq!(inbox.cleanup(30 * DAY).await.unwrap(), 2);

    for standing in STANDINGS {
        let gone = inbox
            .get(&InboxMessageId::new("stripe", standing))
            .await
            .unwrap()
            .is_none();
        assert_eq!(
            gone,
            matches!(standing, "acked" | "marked done"),
            "{standing}"
        );
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_done}").await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_seen}").await, 7);
    let again = inbox
        .enqueue(&Inbound::new("stripe", "acked", "topic", ""))
        .await
        .unwrap();
    assert_eq!(again.arrival, Arrival::New, "what is forgotten is new");
}

/// Shows IBX-100.
async fn the_retention_is_the_callers_choice(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    bring(&inbox, &InboxMessageId::new("stripe", "1"), "acked").await;
    fixture.age("inbox_seen", "last_seen", 10 * DAY).await;

    assert_eq!(inbox.cleanup(30 * DAY).await.unwrap(), 0);
    assert_eq!(inbox.cleanup(11 * DAY).await.unwrap(), 0);
    assert_eq!(inbox.cleanup(9 * DAY).await.unwrap(), 1);
    for error in [
        inbox.cleanup(Duration::ZERO).await.unwrap_err(),
        inbox.cleanup_batch(Duration::ZERO, 1).await.unwrap_err(),
    ] {
        assert_eq!(
            error.kind(),
            ErrorKind::OutOfRange {
                param: "older_than"
            }
        );
    }
}

/// Shows C-43, C-47.
async fn a_duplicate_that_still_arrives_extends_the_window(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let (live, quiet) = (
        InboxMessageId::new("stripe", "live"),
        InboxMessageId::new("stripe", "quiet"),
    );
    bring(&inbox, &live, "acked").await;
    bring(&inbox, &quiet, "acked").await;
    fixture.age("inbox_seen", "first_seen", 40 * DAY).await;
    fixture.age("inbox_seen", "last_seen", 40 * DAY).await;
    fixture.age("inbox_done", "processed_at", 40 * DAY).await;
    assert!(inbox.already_processed(&live).await.unwrap());

    assert_eq!(inbox.cleanup(30 * DAY).await.unwrap(), 1);

    assert!(
        inbox.already_processed(&live).await.unwrap(),
        "still known as done"
    );
    assert_eq!(inbox.get(&quiet).await.unwrap(), None);
    let archived = inbox.get(&live).await.unwrap().unwrap();
    assert_eq!(
        (archived.state, archived.payload),
        (InboxState::Done, None),
        "the archive has let it go"
    );
}

/// Shows IBX-101, C-48.
async fn a_cleanup_goes_in_batches(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    remember_done(&fixture, 25).await;
    for expected in [10, 10, 5, 0] {
        assert_eq!(inbox.cleanup_batch(DAY, 10).await.unwrap(), expected);
    }
    let error = inbox.cleanup_batch(DAY, 0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "batch" });
}

/// Shows IBX-101.
async fn a_cleanup_of_more_than_one_batch_finishes_the_job(fixture: Fixture) {
    remember_done(&fixture, 12_000).await;
    assert_eq!(fixture.room.inbox().cleanup(DAY).await.unwrap(), 12_000);
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_seen}").await, 0);
}

/// Shows IBX-003, IBX-028.
async fn a_store_that_keeps_no_archive_still_knows_what_is_done(fixture: Fixture) {
    let room = fixture.options().keep_done(false).connect().await.unwrap();
    let inbox = room.inbox();
    let id = InboxMessageId::new("stripe", "1");
    bring(&inbox, &id, "acked").await;

    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_done}").await, 0);
    assert!(inbox.already_processed(&id).await.unwrap());
    assert_eq!(
        inbox.get(&id).await.unwrap().unwrap().state,
        InboxState::Done
    );
    let again = inbox
        .enqueue(&Inbound::new("stripe", "1", "topic", ""))
        .await
        .unwrap();
    assert_eq!(again.arrival, Arrival::AlreadyDone);
}

/// Makes a message stand as one of [`STANDINGS`] says. The token is the one that leased it, if any.
async fn bring(inbox: &Inbox, id: &InboxMessageId, standing: &str) -> OwnerToken {
    let owner = OwnerToken::new();
    let this = std::slice::from_ref(id);
    if standing.starts_with("marked") || standing == "seen" {
        inbox.already_processed(id).await.unwrap();
    } else {
        inbox
            .enqueue(&Inbound::new(
                &id.source,
                &id.message_id,
                "topic",
                "payload",
            ))
            .await
            .unwrap();
    }
    if ["leased", "backoff", "acked", "failed"].contains(&standing) {
        let claimed = inbox.claim(owner, LEASE, 100).await.unwrap();
        assert!(claimed.iter().any(|message| message.id == *id));
        for other in claimed.into_iter().filter(|message| message.id != *id) {
            inbox
                .abandon(owner, &[other.id], Abandon::after(HOUR))
                .await
                .unwrap();
        }
    }
    match standing {
        "marked processing" => assert!(inbox.mark_processing(id).await.unwrap()),
        "marked done" => assert!(inbox.mark_processed(id).await.unwrap()),
        "marked dead" => assert!(inbox.mark_dead(id).await.unwrap()),
        "backoff" => assert_eq!(
            inbox
                .abandon(owner, this, Abandon::after(HOUR))
                .await
                .unwrap(),
            1
        ),
        "acked" => assert_eq!(inbox.ack(owner, this).await.unwrap(), 1),
        "failed" => assert_eq!(inbox.fail(owner, this, "no").await.unwrap(), 1),
        _ => {}
    }
    owner
}

/// Writes messages that were marked done ten days ago.
async fn remember_done(fixture: &Fixture, count: u32) {
    let (numbers, now, number, from) = match fixture.backend {
        Backend::Sqlite => (
            format!(
                "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
            ),
            "unixepoch() * 1000000",
            "CAST(i AS text)",
            "n".to_owned(),
        ),
        Backend::Postgres => (
            format!("WITH n(i) AS (SELECT generate_series(1, {count})) "),
            "now()",
            "CAST(i AS text)",
            "n".to_owned(),
        ),
        Backend::MySql => (
            String::new(),
            "UNIX_TIMESTAMP() * 1000000",
            "seq",
            testkit::mysql::numbers(count),
        ),
        Backend::SqlServer => (
            format!(
                "WITH n(i) AS (SELECT TOP ({count}) ROW_NUMBER() OVER (ORDER BY (SELECT NULL)) FROM sys.all_columns AS a CROSS JOIN sys.all_columns AS b) "
            ),
            "SYSUTCDATETIME()",
            "CAST(i AS nvarchar(20))",
            "n".to_owned(),
        ),
    };
    fixture
        .sql(&format!(
            "{numbers} INSERT INTO {{inbox_seen}} (source, message_id, state, first_seen, last_seen) \
             SELECT 'stripe', {number}, 3, {now}, {now} FROM {from}"
        ))
        .await;
    fixture.age("inbox_seen", "last_seen", 10 * DAY).await;
}

testkit::mount!(
    every_mark_on_every_standing_does_what_the_table_says,
    a_mark_on_an_unknown_message_does_nothing,
    a_mark_checks_its_names,
    a_mark_is_for_one_source_only,
    a_message_marked_dead_before_it_was_enqueued_can_still_get_its_content,
    get_shows_a_message_in_every_standing,
    a_bare_id_that_is_unknown_or_ambiguous_is_an_error,
    a_list_shows_one_state_page_by_page,
    counts_tell_how_many_stand_where,
    a_revived_message_is_ready_with_a_fresh_budget,
    only_dead_messages_are_revived,
    a_bare_id_revives_and_purges_every_sources_dead_message,
    a_purge_deletes_dead_messages_only_and_forgets_them,
    a_purge_by_age_spares_what_died_lately,
    a_cleanup_forgets_old_done_messages_and_nothing_else,
    the_retention_is_the_callers_choice,
    a_duplicate_that_still_arrives_extends_the_window,
    a_cleanup_goes_in_batches,
    a_cleanup_of_more_than_one_batch_finishes_the_job,
    a_store_that_keeps_no_archive_still_knows_what_is_done,
);
