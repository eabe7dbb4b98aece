//! Starting joins, and the tables that hold them.

use std::collections::BTreeSet;

use postroom::{ErrorKind, JoinStatus, NewJoin, tx};
use testkit::{Backend, Fixture};

/// Shows JOIN-001, JOIN-006, OBX-080, OBX-082.
async fn a_new_join_is_pending_with_both_counters_at_zero(fixture: Fixture) {
    let joins = fixture.room.joins();
    let new = NewJoin::new(3)
        .grouping_key("customer-7")
        .metadata(r#"{"why":"test"}"#);

    let id = joins.start(&new).await.unwrap();

    let join = joins.get(id).await.unwrap().unwrap();
    assert_eq!(join.id, id);
    assert_eq!(join.grouping_key.as_deref(), Some("customer-7"));
    assert_eq!(join.metadata.as_deref(), Some(r#"{"why":"test"}"#));
    assert_eq!(
        (join.expected_steps, join.completed_steps, join.failed_steps),
        (3, 0, 0)
    );
    assert_eq!(join.status, JoinStatus::Pending);
    assert!(!join.is_complete());
    let row = "SELECT count(*) FROM {outbox_join} WHERE expected_steps = 3 AND completed_steps = 0 \
               AND failed_steps = 0 AND status = 0 AND grouping_key = 'customer-7'";
    assert_eq!(fixture.number(row).await, 1);
}

/// Shows JOIN-006, OBX-081.
async fn every_join_has_an_id_of_its_own(fixture: Fixture) {
    let joins = fixture.room.joins();
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let joins = joins.clone();
        starts.spawn(async move { joins.start(&NewJoin::new(1)).await.unwrap() });
    }
    let ids: BTreeSet<_> = starts.join_all().await.into_iter().collect();
    assert_eq!(ids.len(), 50);
    assert_eq!(
        fixture
            .number("SELECT count(DISTINCT join_id) FROM {outbox_join}")
            .await,
        50
    );
    for id in ids {
        assert!(joins.get(id).await.unwrap().is_some());
    }
}

/// Shows JOIN-002.
async fn a_join_of_no_steps_is_out_of_range(fixture: Fixture) {
    let joins = fixture.room.joins();
    for expected in [0, -1, i32::MIN] {
        let error = joins.start(&NewJoin::new(expected)).await.unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::OutOfRange {
                param: "expected_steps"
            }
        );
    }
    assert_eq!(
        fixture.number("SELECT count(*) FROM {outbox_join}").await,
        0
    );
    for expected in [1, i32::MAX] {
        let id = joins.start(&NewJoin::new(expected)).await.unwrap();
        let join = joins.get(id).await.unwrap().unwrap();
        assert_eq!(join.expected_steps, expected.unsigned_abs());
    }
}

/// Shows JOIN-003.
async fn an_empty_grouping_key_counts_as_none(fixture: Fixture) {
    let joins = fixture.room.joins();
    let empty = joins
        .start(&NewJoin::new(1).grouping_key(""))
        .await
        .unwrap();
    let none = joins.start(&NewJoin::new(1)).await.unwrap();
    for id in [empty, none] {
        assert_eq!(joins.get(id).await.unwrap().unwrap().grouping_key, None);
    }
    let nulls = "SELECT count(*) FROM {outbox_join} WHERE grouping_key IS NULL";
    assert_eq!(fixture.number(nulls).await, 2);
}

/// Shows JOIN-004, C-56.
async fn a_grouping_key_of_255_characters_fits_and_a_longer_one_is_refused(fixture: Fixture) {
    let joins = fixture.room.joins();
    for key in ["é".repeat(256), "a\0b".to_owned()] {
        let error = joins
            .start(&NewJoin::new(1).grouping_key(key))
            .await
            .unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::InvalidArgument {
                param: "grouping_key"
            }
        );
    }
    let error = joins
        .start(&NewJoin::new(1).metadata("a\0b"))
        .await
        .unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::InvalidArgument { param: "metadata" }
    );
    assert_eq!(
        fixture.number("SELECT count(*) FROM {outbox_join}").await,
        0
    );

    let key = "é".repeat(255);
    let id = joins
        .start(&NewJoin::new(1).grouping_key(&key))
        .await
        .unwrap();
    assert_eq!(
        joins.get(id).await.unwrap().unwrap().grouping_key,
        Some(key)
    );
}

/// Shows JOIN-005.
async fn a_new_join_was_created_and_updated_now(fixture: Fixture) {
    let joins = fixture.room.joins();
    let before = fixture.now().await;
    let id = joins.start(&NewJoin::new(1)).await.unwrap();
    let after = fixture.now().await;

    let join = joins.get(id).await.unwrap().unwrap();
    assert!(before <= join.created_at && join.created_at <= after);
    assert_eq!(join.last_updated_at, join.created_at);
}

/// Shows OBX-080.
async fn metadata_is_any_text(fixture: Fixture) {
    let joins = fixture.room.joins();
    let large = "m".repeat(3_000_000);
    for metadata in ["", " ", "{not json", "🦀 ' \" \\ $1", &large] {
        let id = joins
            .start(&NewJoin::new(1).metadata(metadata))
            .await
            .unwrap();
        assert!(joins.get(id).await.unwrap().unwrap().metadata.as_deref() == Some(metadata));
    }
}

/// Shows JOIN-006, OBX-080.
async fn a_join_started_in_the_callers_transaction_is_there_when_that_commits(fixture: Fixture) {
    let joins = fixture.room.joins();
    for commit in [false, true] {
        let id = match fixture.backend {
            Backend::Sqlite => {
                let mut connection = fixture.sqlite();
                let mut transaction = connection.transaction().unwrap();
                let id = tx::now(joins.start_in(&mut transaction, &NewJoin::new(1))).unwrap();
                if commit {
                    transaction.commit().unwrap();
                }
                id
            }
            Backend::Postgres => {
                let mut client = fixture.postgres().await;
                let mut transaction = client.transaction().await.unwrap();
                let id = joins
                    .start_in(&mut transaction, &NewJoin::new(1))
                    .await
                    .unwrap();
                if commit {
                    transaction.commit().await.unwrap();
                } else {
                    transaction.rollback().await.unwrap();
                }
                id
            }
            Backend::MySql => {
                let mut client = fixture.mysql().await;
                let mut transaction = testkit::mysql::begin(&mut client).await;
                let id = joins
                    .start_in(&mut transaction, &NewJoin::new(1))
                    .await
                    .unwrap();
                if commit {
                    transaction.commit().await.unwrap();
                } else {
                    transaction.rollback().await.unwrap();
                }
                id
            }
            Backend::SqlServer => {
                let mut transaction = fixture.sqlserver().await;
                transaction.begin_transaction().await.unwrap();
                let id = joins
                    .start_in(&mut transaction, &NewJoin::new(1))
                    .await
                    .unwrap();
                if commit {
                    transaction.commit_transaction().await.unwrap();
                } else {
                    transaction.rollback_transaction().await.unwrap();
                }
                id
            }
        };
        assert_eq!(joins.get(id).await.unwrap().is_some(), commit);
    }
}

/// Shows JOIN-090, JOIN-091.
async fn deployment_creates_the_join_tables_and_doing_it_again_changes_nothing(fixture: Fixture) {
    let joins = fixture.room.joins();
    let id = joins.start(&NewJoin::new(1)).await.unwrap();
    let tables = fixture.tables().await;
    for table in ["outbox_join", "outbox_join_member"] {
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
    assert!(joins.get(id).await.unwrap().is_some());
}

/// Shows JOIN-082, JOIN-090.
async fn grouping_keys_and_members_have_their_indexes(fixture: Fixture) {
    let joins = fixture.indexes("outbox_join").await;
    assert!(
        joins.iter().any(|columns| columns == "grouping_key"),
        "{joins:?}"
    );
    let members = fixture.indexes("outbox_join_member").await;
    assert!(
        members
            .iter()
            .any(|columns| columns == "message_id, join_id"),
        "{members:?}"
    );
    assert!(
        members.iter().any(|columns| columns == "join_id"),
        "{members:?}"
    );
}

/// Shows JOIN-014, JOIN-033, JOIN-092, C-26.
async fn the_outbox_knows_nothing_of_joins(fixture: Fixture) {
    for table in ["outbox", "outbox_done", "outbox_dead"] {
        let columns = fixture.columns(table).await;
        assert!(columns.contains(&"message_id".to_owned()), "{columns:?}");
        assert!(
            !columns.iter().any(|column| column.contains("join")),
            "{columns:?}"
        );
        assert_eq!(fixture.references(table).await, [""; 0]);
    }
    assert_eq!(fixture.references("outbox_join").await, [""; 0]);
    // MySQL locks the row that a foreign key points to: there it is one that nobody counts in.
    let join = match fixture.backend {
        Backend::MySql => {
            assert_eq!(fixture.references("outbox_join_key").await, ["outbox_join"]);
            "outbox_join_key"
        }
        _ => "outbox_join",
    };
    assert_eq!(fixture.references("outbox_join_member").await, [join]);
}

/// Shows JOIN-090.
async fn the_join_tables_can_have_other_names(fixture: Fixture) {
    let empty = Fixture::empty(fixture.backend).await;
    let options = empty
        .options()
        .join_table("gather")
        .join_member_table("gather_step")
        .deploy(true);
    let joins = options.connect().await.unwrap().joins();
    let id = joins.start(&NewJoin::new(1)).await.unwrap();
    assert!(joins.get(id).await.unwrap().is_some());
    assert_eq!(empty.number("SELECT count(*) FROM {gather}").await, 1);
    assert_eq!(empty.number("SELECT count(*) FROM {gather_step}").await, 0);
}

testkit::mount!(
    a_new_join_is_pending_with_both_counters_at_zero,
    every_join_has_an_id_of_its_own,
    a_join_of_no_steps_is_out_of_range,
    an_empty_grouping_key_counts_as_none,
    a_grouping_key_of_255_characters_fits_and_a_longer_one_is_refused,
    a_new_join_was_created_and_updated_now,
    metadata_is_any_text,
    a_join_started_in_the_callers_transaction_is_there_when_that_commits,
    deployment_creates_the_join_tables_and_doing_it_again_changes_nothing,
    grouping_keys_and_members_have_their_indexes,
    the_outbox_knows_nothing_of_joins,
    the_join_tables_can_have_other_names,
);
