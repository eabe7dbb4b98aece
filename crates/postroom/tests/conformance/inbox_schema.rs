//! The inbox's tables, indexes, functions and rights.

use std::time::Duration;

use postroom::{ErrorKind, Inbound, InboxMessageId, OwnerToken};
use testkit::Fixture;

const LEASE: Duration = Duration::from_secs(30);

/// Shows IBX-114, IBX-116, IBX-117.
async fn deployment_creates_the_inbox_and_doing_it_again_changes_nothing(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox
        .enqueue(&Inbound::new("stripe", "evt_1", "topic", ""))
        .await
        .unwrap();
    let tables = fixture.tables().await;
    for table in ["inbox", "inbox_seen", "inbox_done", "inbox_dead"] {
        assert!(tables.iter().any(|name| name == table), "{tables:?}");
    }

    for _ in 0..2 {
        fixture
            .options()
            .deploy(true)
            .connect()
            .await
            .unwrap()
            .deploy()
            .await
            .unwrap();
    }

    assert_eq!(fixture.tables().await, tables);
    assert_eq!(
        inbox
            .claim(OwnerToken::new(), LEASE, 10)
            .await
            .unwrap()
            .len(),
        1
    );
    fixture.room.verify().await.unwrap();
}

/// Shows IBX-115.
async fn without_deployment_nothing_is_created(fixture: Fixture) {
    let empty = Fixture::empty(fixture.backend).await;
    let before = empty.tables().await;
    let inbox = empty.again().await.inbox();

    for error in [
        inbox
            .enqueue(&Inbound::new("stripe", "evt_1", "topic", ""))
            .await
            .unwrap_err(),
        inbox
            .already_processed(&InboxMessageId::new("stripe", "evt_1"))
            .await
            .unwrap_err(),
        inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    }

    assert_eq!(empty.tables().await, before);
    assert!(before.is_empty(), "{before:?}");
}

/// The live table holds only messages in processing, and `next_attempt_at` folds due time and
/// backoff together: that is the status and the due time of the claim's index.
///
/// Shows IBX-117, IBX-122, IBX-125.
async fn claims_and_lookups_have_their_indexes(fixture: Fixture) {
    let live = fixture.indexes("inbox").await;
    assert!(
        live.iter().any(|columns| columns == "next_attempt_at"),
        "{live:?}"
    );
    let seen = fixture.indexes("inbox_seen").await;
    assert!(
        seen.iter().any(|columns| columns == "message_id, source"),
        "{seen:?}"
    );
}

/// Shows IBX-114, IBX-117.
async fn the_inbox_table_can_have_another_name(fixture: Fixture) {
    let empty = Fixture::empty(fixture.backend).await;
    let room = empty
        .options()
        .inbox_table("letters")
        .deploy(true)
        .connect()
        .await
        .unwrap();
    let tables = empty.tables().await;
    assert!(
        tables.contains(&"letters_seen".to_owned()) && !tables.contains(&"inbox".to_owned()),
        "{tables:?}"
    );
    room.inbox()
        .enqueue(&Inbound::new("stripe", "evt_1", "topic", ""))
        .await
        .unwrap();
    assert_eq!(
        room.inbox()
            .claim(OwnerToken::new(), LEASE, 10)
            .await
            .unwrap()
            .len(),
        1
    );
}

/// Shows IBX-126.
async fn a_user_who_may_only_read_and_write_rows_can_do_all_the_work(fixture: Fixture) {
    let schema = fixture.schema.clone().unwrap();
    let user = format!("user_{schema}");
    fixture
        .sql(&format!(
            "CREATE ROLE \"{user}\" LOGIN; GRANT USAGE ON SCHEMA \"{schema}\" TO \"{user}\"; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA \"{schema}\" TO \"{user}\"; \
             GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA \"{schema}\" TO \"{user}\""
        ))
        .await;
    let url = fixture
        .url
        .replacen("://postroom@", &format!("://{user}@"), 1);
    let room = postroom::Options::new(url)
        .schema(&schema)
        .connect()
        .await
        .unwrap();
    let inbox = room.inbox();
    let id = InboxMessageId::new("stripe", "evt_1");

    inbox.already_processed(&id).await.unwrap();
    inbox
        .enqueue(&Inbound::new("stripe", "evt_1", "topic", ""))
        .await
        .unwrap();
    for round in 0..2 {
        let owner = OwnerToken::new();
        assert_eq!(inbox.claim(owner, LEASE, 10).await.unwrap().len(), 1);
        if round == 0 {
            inbox
                .fail(owner, std::slice::from_ref(&id), "no")
                .await
                .unwrap();
            inbox.revive(std::slice::from_ref(&id)).await.unwrap();
        } else {
            assert_eq!(
                inbox.ack(owner, std::slice::from_ref(&id)).await.unwrap(),
                1
            );
        }
    }
    inbox.reap().await.unwrap();
    inbox.counts().await.unwrap();
    assert!(inbox.get(&id).await.unwrap().is_some());
    fixture
        .age("inbox_seen", "last_seen", Duration::from_secs(3600))
        .await;
    assert_eq!(inbox.cleanup(Duration::from_secs(60)).await.unwrap(), 1);
    room.verify().await.unwrap();
    fixture
        .sql(&format!("DROP OWNED BY \"{user}\"; DROP ROLE \"{user}\""))
        .await;
}

/// Shows C-54.
async fn the_databases_functions_do_the_same_work_for_any_language(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let owner = OwnerToken::new();
    let enqueue = |name: &str| {
        format!(
            "SELECT CAST({{inbox_enqueue}}(gen_random_uuid(), 'stripe', '{name}', 'topic', 'payload') AS bigint)"
        )
    };
    for name in ["1", "2", "3"] {
        assert_eq!(fixture.number(&enqueue(name)).await, 2, "new");
    }
    assert_eq!(fixture.number(&enqueue("1")).await, 4, "replaced");
    let claim =
        format!("SELECT count(*) FROM {{inbox_claim}}('{owner}', interval '30 seconds', 10)");
    assert_eq!(fixture.number(&claim).await, 3);
    let settle = |function: &str, name: &str, rest: &str| {
        format!(
            "SELECT count(*) FROM {{{function}}}('{owner}', {{inbox_ids}}('[[\"stripe\", \"{name}\"]]'){rest})"
        )
    };
    assert_eq!(
        fixture.number(&settle("inbox_ack", "1", ", 'sql'")).await,
        1
    );
    assert_eq!(
        fixture
            .number(&settle("inbox_fail", "2", ", ARRAY['broken'], 'sql'"))
            .await,
        1
    );
    let rest = ", ARRAY[NULL::interval], ARRAY[NULL::text], ARRAY[false]";
    assert_eq!(fixture.number(&settle("inbox_abandon", "3", rest)).await, 1);
    assert_eq!(fixture.number("SELECT {inbox_reap}()").await, 0);

    let counts = inbox.counts().await.unwrap();
    assert_eq!((counts.done, counts.dead, counts.processing), (1, 1, 1));
    let failed = inbox
        .get(&InboxMessageId::new("stripe", "2"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(failed.progress.last_error.as_deref(), Some("broken"));
    assert!(
        inbox
            .already_processed(&InboxMessageId::new("stripe", "1"))
            .await
            .unwrap()
    );
}

testkit::mount!(
    deployment_creates_the_inbox_and_doing_it_again_changes_nothing,
    without_deployment_nothing_is_created,
    claims_and_lookups_have_their_indexes,
    the_inbox_table_can_have_another_name;
    postgres: a_user_who_may_only_read_and_write_rows_can_do_all_the_work, the_databases_functions_do_the_same_work_for_any_language
);
