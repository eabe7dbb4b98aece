//! Schemas that are older, newer, or changed by hand.

use std::time::Duration;

use postroom::{ErrorKind, Message, OwnerToken};
use testkit::{Backend, Fixture};

/// Deploys the schema as it was before its fourth migration, and leaves a message in it.
async fn deploy_older(fixture: &Fixture) {
    let script = fixture.options().schema_sql().unwrap();
    let (older, _) = script
        .split_once("-- migration 4: headers")
        .expect("a fourth migration");
    fixture.sql_as_is(older).await;
    fixture
        .sql(match fixture.backend {
            Backend::Sqlite => {
                "INSERT INTO {outbox} (id, message_id, topic, payload, created_at, next_attempt_at)
                 VALUES (randomblob(16), randomblob(16), 'old', 'kept', 1, 1)"
            }
            Backend::Postgres => {
                "INSERT INTO {outbox} (id, message_id, topic, payload)
                 VALUES (gen_random_uuid(), gen_random_uuid(), 'old', 'kept')"
            }
            Backend::MySql => {
                "INSERT INTO {outbox} (id, message_id, topic, payload, created_at, next_attempt_at)
                 VALUES (UNHEX(LPAD('1', 32, '0')), UNHEX(LPAD('2', 32, '0')), 'old', 'kept', 1, 1)"
            }
Backend::SqlServer => {
 "INSERT INTO {outbox} (id, message_id, topic, payload) VALUES (NEWID(), NEWID(), 'old', 'kept')"
}
        })
        .await;
}

/// Shows OBX-108, OBX-109, OBX-110, IBX-115, IBX-116, JOIN-091.
async fn an_older_schema_is_named_refused_and_upgraded_with_its_rows(fixture: Fixture) {
    let fixture = Fixture::empty(fixture.backend).await;
    deploy_older(&fixture).await;

    let error = fixture.room.verify().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(
        error.to_string().contains("migration 4") && error.to_string().contains("deploy"),
        "{error}"
    );
    let error = fixture
        .room
        .outbox()
        .enqueue(&Message::new("new", ""))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    assert_eq!(fixture.number("SELECT count(*) FROM {outbox}").await, 1);

    fixture.room.deploy().await.unwrap();
    fixture.room.verify().await.unwrap();
    fixture.room.deploy().await.unwrap();
    let outbox = fixture.room.outbox();
    let claimed = outbox
        .claim(OwnerToken::new(), Duration::from_secs(30), 10)
        .await
        .unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(
        (claimed[0].topic.as_str(), claimed[0].payload.as_str()),
        ("old", "kept")
    );
    assert!(claimed[0].headers.is_empty());
    outbox
        .enqueue(&Message::new("new", "").header("a", "b"))
        .await
        .unwrap();
}

/// Shows OBX-109.
async fn nothing_is_created_unless_asked(fixture: Fixture) {
    let fixture = Fixture::empty(fixture.backend).await;

    let error = fixture
        .room
        .outbox()
        .enqueue(&Message::new("a", ""))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    let error = fixture.room.verify().await.unwrap_err();
    assert!(error.to_string().contains("nothing is deployed"), "{error}");
}

/// Shows OBX-110.
async fn a_newer_schema_is_left_alone(fixture: Fixture) {
    fixture
        .sql("INSERT INTO {outbox_schema} (version, name, checksum) VALUES (99, 'later', 'x')")
        .await;

    for error in [
        fixture.room.deploy().await.unwrap_err(),
        fixture.room.verify().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains("newer"), "{error}");
    }
}

/// Shows OBX-108.
async fn a_table_that_was_changed_by_hand_does_not_verify(fixture: Fixture) {
    fixture.room.verify().await.unwrap();
    fixture
        .sql("ALTER TABLE {outbox} RENAME COLUMN payload TO content")
        .await;

    let error = fixture.room.verify().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
}

/// Shows OBX-112, C-54.
async fn a_function_that_is_missing_does_not_verify(fixture: Fixture) {
    if fixture.backend != Backend::Postgres {
        return fixture.room.verify().await.unwrap();
    }
    fixture.sql("DROP FUNCTION {outbox_reap}").await;

    let error = fixture.room.verify().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
}

testkit::mount!(
    an_older_schema_is_named_refused_and_upgraded_with_its_rows,
    nothing_is_created_unless_asked,
    a_newer_schema_is_left_alone,
    a_table_that_was_changed_by_hand_does_not_verify,
    a_function_that_is_missing_does_not_verify,
);
