//! The inbox remembers what has arrived: one record per source and message id.

use std::time::Duration;

use postroom::{
    Abandon, ErrorKind, Inbound, Inbox, InboxMessageId, InboxState, OwnerToken, Sighting,
};
use sha2::{Digest, Sha256};
use testkit::Fixture;

const LEASE: Duration = Duration::from_secs(30);

/// Shows IBX-002, IBX-004, C-36.
async fn a_message_never_seen_is_remembered_as_seen(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let id = InboxMessageId::new("stripe", "evt_1");

    assert!(!inbox.already_processed(&id).await.unwrap());

    let remembered = "SELECT count(*) FROM {inbox_seen} WHERE source = 'stripe' AND message_id = 'evt_1' AND state = 0";
    assert_eq!(fixture.number(remembered).await, 1);
    let message = inbox.get(&id).await.unwrap().unwrap();
    assert_eq!(message.state, InboxState::Seen);
    assert_eq!((message.topic, message.payload), (None, None));
}

/// Shows IBX-002, IBX-003.
async fn a_message_that_is_done_is_a_duplicate_every_time(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let acked = InboxMessageId::new("stripe", "acked");
    process(&inbox, &acked).await;
    let marked = InboxMessageId::new("stripe", "marked");
    inbox.already_processed(&marked).await.unwrap();
    inbox.mark_processed(&marked).await.unwrap();

    for id in [&acked, &marked] {
        for _ in 0..3 {
            assert!(inbox.already_processed(id).await.unwrap(), "{id}");
        }
        assert_eq!(
            inbox.get(id).await.unwrap().unwrap().state,
            InboxState::Done
        );
    }
}

/// Shows IBX-005.
async fn a_message_that_is_not_done_is_no_duplicate_and_moves_last_seen(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let id = |name: &str| InboxMessageId::new("stripe", name);
    inbox.already_processed(&id("seen")).await.unwrap();
    inbox.already_processed(&id("marked")).await.unwrap();
    inbox.mark_processing(&id("marked")).await.unwrap();
    for name in ["leased", "abandoned", "dead", "queued"] {
        inbox
            .enqueue(&Inbound::new("stripe", name, "topic", ""))
            .await
            .unwrap();
        let owner = OwnerToken::new();
        match name {
            "queued" => continue,
            _ => assert_eq!(inbox.claim(owner, LEASE, 1).await.unwrap().len(), 1),
        }
        match name {
            "abandoned" => {
                inbox
                    .abandon(owner, &[id(name)], Abandon::after(LEASE))
                    .await
                    .unwrap();
            }
            "dead" => {
                inbox.fail(owner, &[id(name)], "no").await.unwrap();
            }
            _ => {}
        }
    }
    fixture
        .age("inbox_seen", "first_seen", Duration::from_secs(3600))
        .await;
    fixture
        .age("inbox_seen", "last_seen", Duration::from_secs(3600))
        .await;

    for name in ["seen", "marked", "queued", "leased", "abandoned", "dead"] {
        let before = inbox.get(&id(name)).await.unwrap().unwrap();
        assert!(!inbox.already_processed(&id(name)).await.unwrap(), "{name}");
        let after = inbox.get(&id(name)).await.unwrap().unwrap();
        assert_eq!(after.first_seen, before.first_seen, "{name}");
        assert!(
            after.last_seen > before.last_seen + Duration::from_secs(3590),
            "{name}"
        );
        assert_eq!(
            (after.state, after.progress),
            (before.state, before.progress),
            "{name}"
        );
    }
}

/// Shows C-43.
async fn a_done_message_that_arrives_again_moves_last_seen(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let id = InboxMessageId::new("stripe", "evt_1");
    process(&inbox, &id).await;
    fixture
        .age("inbox_seen", "last_seen", Duration::from_secs(3600))
        .await;
    let before = fixture.now().await;

    assert!(inbox.already_processed(&id).await.unwrap());

    let message = inbox.get(&id).await.unwrap().unwrap();
    assert!(message.last_seen >= before && message.last_seen <= fixture.now().await);
    assert_eq!(message.state, InboxState::Done);
}

/// Shows IBX-001, C-35.
async fn source_and_message_id_make_the_key_together(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let done = InboxMessageId::new("stripe", "1");
    process(&inbox, &done).await;

    let others = [
        ("paypal", "1"),
        ("stripe", "2"),
        ("1", "stripe"),
        ("stripe1", "1"),
        ("strip", "e1"),
    ];
    for (source, id) in others {
        let other = InboxMessageId::new(source, id);
        assert!(!inbox.already_processed(&other).await.unwrap(), "{other}");
    }

    assert!(inbox.already_processed(&done).await.unwrap());
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_seen}").await, 6);
}

/// Shows IBX-001.
async fn case_and_spaces_make_other_keys(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let done = InboxMessageId::new("Stripe", "Evt");
    process(&inbox, &done).await;

    let others = [
        ("stripe", "Evt"),
        ("Stripe", "evt"),
        ("Stripe ", "Evt"),
        (" Stripe", "Evt"),
        ("Stripe", "Evt "),
        ("Stripe", "Evt  "),
        ("Stripe", "Evt\t"),
        ("Stripe", "Ėvt"),
        ("Stripe", "E\u{307}vt"),
    ];
    for (source, id) in others {
        let other = InboxMessageId::new(source, id);
        assert!(
            !inbox.already_processed(&other).await.unwrap(),
            "{source:?} {id:?}"
        );
        assert_eq!(inbox.get(&other).await.unwrap().unwrap().id, other);
    }

    assert_eq!(
        fixture.number("SELECT count(*) FROM {inbox_seen}").await,
        10
    );
}

/// Shows IBX-006, IBX-105.
async fn thirty_two_concurrent_checks_remember_one_message(fixture: Fixture) {
    let rooms = [fixture.room.clone(), fixture.again().await];
    let checks: Vec<_> = (0..32)
        .map(|task| {
            let inbox = rooms[task % 2].inbox();
            tokio::spawn(async move {
                inbox
                    .already_processed(&InboxMessageId::new("stripe", "evt_1"))
                    .await
            })
        })
        .collect();
    for check in checks {
        assert!(!check.await.unwrap().unwrap());
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_seen}").await, 1);
}

/// Whoever checks while the message is being acked sees it either before or after, and everybody
/// after that sees it done.
///
/// Shows IBX-002, IBX-006.
async fn a_check_that_races_with_the_ack_never_goes_back_to_not_done(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for round in 0..20 {
        let id = InboxMessageId::new("stripe", format!("evt_{round}"));
        inbox
            .enqueue(&Inbound::new("stripe", &id.message_id, "topic", ""))
            .await
            .unwrap();
        let owner = OwnerToken::new();
        assert_eq!(inbox.claim(owner, LEASE, 1).await.unwrap().len(), 1);
        let checks: Vec<_> = (0..4)
            .map(|_| {
                let (inbox, id) = (inbox.clone(), id.clone());
                tokio::spawn(async move {
                    let mut answers = Vec::new();
                    while answers.last() != Some(&true) {
                        answers.push(inbox.already_processed(&id).await.unwrap());
                    }
                    answers.push(inbox.already_processed(&id).await.unwrap());
                    answers
                })
            })
            .collect();
        assert_eq!(inbox.ack(owner, &[id]).await.unwrap(), 1);
        for check in checks {
            assert!(check.await.unwrap().ends_with(&[true, true]));
        }
    }
}

/// Shows IBX-007, IBX-008, C-42.
async fn the_first_hash_stays_and_a_different_one_is_told(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let id = InboxMessageId::new("stripe", "evt_1");
    let same = Sighting {
        already_processed: false,
        hash_differs: false,
    };
    let differs = Sighting {
        already_processed: false,
        hash_differs: true,
    };

    for (hash, expected) in [
        (b"one", same),
        (b"one", same),
        (b"two", differs),
        (b"two", differs),
        (b"one", same),
    ] {
        assert_eq!(
            inbox.already_processed_with_hash(&id, hash).await.unwrap(),
            expected
        );
        assert_eq!(
            inbox.get(&id).await.unwrap().unwrap().hash.as_deref(),
            Some(&b"one"[..])
        );
    }
    assert!(!inbox.already_processed(&id).await.unwrap());
    assert_eq!(
        inbox.get(&id).await.unwrap().unwrap().hash.as_deref(),
        Some(&b"one"[..])
    );
}

/// Shows IBX-003, IBX-008.
async fn a_different_hash_of_a_done_message_is_still_a_duplicate(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let id = InboxMessageId::new("stripe", "evt_1");
    inbox
        .already_processed_with_hash(&id, b"one")
        .await
        .unwrap();
    inbox.mark_processed(&id).await.unwrap();

    let sighting = inbox
        .already_processed_with_hash(&id, b"two")
        .await
        .unwrap();

    assert_eq!(
        sighting,
        Sighting {
            already_processed: true,
            hash_differs: true
        }
    );
}

/// Shows IBX-007, C-42.
async fn a_missing_hash_is_filled_in_once(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let id = InboxMessageId::new("stripe", "evt_1");
    inbox.already_processed(&id).await.unwrap();
    assert_eq!(inbox.get(&id).await.unwrap().unwrap().hash, None);

    let filled = inbox.already_processed_with_hash(&id, b"").await.unwrap();
    assert!(!filled.hash_differs);
    assert_eq!(
        inbox.get(&id).await.unwrap().unwrap().hash,
        Some(Vec::new())
    );

    let other = inbox
        .already_processed_with_hash(&id, b"one")
        .await
        .unwrap();
    assert!(other.hash_differs, "the empty hash is a hash");
}

/// Shows IBX-007, IBX-129.
async fn a_cryptographic_hash_is_kept_whole_and_notices_one_changed_bit(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let id = InboxMessageId::new("stripe", "evt_1");
    let hash = Sha256::digest(b"content").to_vec();
    inbox.already_processed_with_hash(&id, &hash).await.unwrap();
    assert_eq!(
        inbox.get(&id).await.unwrap().unwrap().hash,
        Some(hash.clone())
    );

    for byte in [0, 31] {
        let mut other = hash.clone();
        other[byte] ^= 1;
        assert!(
            inbox
                .already_processed_with_hash(&id, &other)
                .await
                .unwrap()
                .hash_differs
        );
    }
    assert!(
        !inbox
            .already_processed_with_hash(&id, &hash)
            .await
            .unwrap()
            .hash_differs
    );
}

/// Shows IBX-009, IBX-010.
async fn an_empty_source_or_message_id_is_refused(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for (source, id, param) in [("stripe", "", "message_id"), ("", "evt_1", "source")] {
        let id = InboxMessageId::new(source, id);
        for error in [
            inbox.already_processed(&id).await.unwrap_err(),
            inbox
                .already_processed_with_hash(&id, b"one")
                .await
                .unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument { param });
        }
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_seen}").await, 0);
}

/// Shows IBX-011, IBX-012, C-56.
async fn names_of_255_characters_fit_and_longer_ones_are_refused(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for letter in ["a", "é", "🦀"] {
        let fits = InboxMessageId::new(letter.repeat(255), letter.repeat(255));
        assert!(!inbox.already_processed(&fits).await.unwrap());
        assert_eq!(inbox.get(&fits).await.unwrap().unwrap().id, fits);

        let long = letter.repeat(256);
        let by_id = inbox
            .already_processed(&InboxMessageId::new("stripe", &long))
            .await
            .unwrap_err();
        assert_eq!(
            by_id.kind(),
            ErrorKind::InvalidArgument {
                param: "message_id"
            }
        );
        let by_source = inbox
            .already_processed(&InboxMessageId::new(&long, "evt_1"))
            .await
            .unwrap_err();
        assert_eq!(
            by_source.kind(),
            ErrorKind::InvalidArgument { param: "source" }
        );
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_seen}").await, 3);
}

/// Shows C-56.
async fn names_with_a_nul_character_are_refused(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for (source, id, param) in [
        ("stripe", "evt\0", "message_id"),
        ("\0stripe", "evt", "source"),
    ] {
        let error = inbox
            .already_processed(&InboxMessageId::new(source, id))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument { param });
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_seen}").await, 0);
}

/// Shows IBX-001.
async fn names_that_look_like_sql_are_only_names(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for name in [
        "'; DROP TABLE inbox_seen; --",
        "\"",
        "$1",
        "?1",
        "%",
        "_",
        "\\",
        "\n",
    ] {
        let id = InboxMessageId::new(name, name);
        process(&inbox, &id).await;
        assert!(inbox.already_processed(&id).await.unwrap(), "{name:?}");
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {inbox_seen}").await, 8);
}

async fn process(inbox: &Inbox, id: &InboxMessageId) {
    inbox
        .enqueue(&Inbound::new(&id.source, &id.message_id, "topic", ""))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    let claimed = inbox.claim(owner, LEASE, 1).await.unwrap();
    assert_eq!(claimed[0].id, *id);
    assert_eq!(inbox.ack(owner, std::slice::from_ref(id)).await.unwrap(), 1);
}

testkit::mount!(
    a_message_never_seen_is_remembered_as_seen,
    a_message_that_is_done_is_a_duplicate_every_time,
    a_message_that_is_not_done_is_no_duplicate_and_moves_last_seen,
    a_done_message_that_arrives_again_moves_last_seen,
    source_and_message_id_make_the_key_together,
    case_and_spaces_make_other_keys,
    thirty_two_concurrent_checks_remember_one_message,
    a_check_that_races_with_the_ack_never_goes_back_to_not_done,
    the_first_hash_stays_and_a_different_one_is_told,
    a_different_hash_of_a_done_message_is_still_a_duplicate,
    a_missing_hash_is_filled_in_once,
    a_cryptographic_hash_is_kept_whole_and_notices_one_changed_bit,
    an_empty_source_or_message_id_is_refused,
    names_of_255_characters_fit_and_longer_ones_are_refused,
    names_with_a_nul_character_are_refused,
    names_that_look_like_sql_are_only_names,
);
