//! Looking at joins, cancelling them and clearing them away.

use std::time::Duration;

use postroom::{
    Attached, ErrorKind, JoinId, JoinStatus, JoinWait, Message, NewJoin, OwnerToken, Reported,
    StepStatus,
};
use testkit::{Backend, Fixture};

const LEASE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Shows C-34.
async fn a_pending_join_can_be_cancelled_and_is_frozen_then(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let join = joins.start(&NewJoin::new(3)).await.unwrap();
    let steps = outbox
        .enqueue_many(&vec![Message::new("step", "").join(join); 3])
        .await
        .unwrap();
    let owner = OwnerToken::new();
    outbox.claim(owner, LEASE, 10).await.unwrap();
    outbox.ack(owner, &[steps[0].work_item_id]).await.unwrap();

    assert!(joins.cancel(join).await.unwrap());

    let cancelled = joins.get(join).await.unwrap().unwrap();
    assert_eq!(
        (cancelled.status, cancelled.completed_steps),
        (JoinStatus::Cancelled, 1)
    );
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join} WHERE status = 3")
            .await,
        1
    );
    outbox.ack(owner, &[steps[1].work_item_id]).await.unwrap();
    assert_eq!(
        joins
            .report_failed(join, steps[2].message_id)
            .await
            .unwrap(),
        Reported::Counted
    );
    joins.reconcile(join).await.unwrap();
    assert!(!joins.cancel(join).await.unwrap(), "once is enough");
    assert_eq!(joins.get(join).await.unwrap().unwrap(), cancelled);
    let members = joins.members(join, None, 10).await.unwrap();
    assert!(
        members
            .iter()
            .all(|member| member.status != StepStatus::Pending),
        "members still get their status"
    );
}

/// Shows C-34, JOIN-042.
async fn a_finished_join_cannot_be_cancelled_and_an_unknown_one_is_an_error(fixture: Fixture) {
    let joins = fixture.room.joins();
    for well in [true, false] {
        let join = finished(&fixture, well).await;
        let before = joins.get(join).await.unwrap().unwrap();
        assert!(!joins.cancel(join).await.unwrap());
        assert_eq!(joins.get(join).await.unwrap().unwrap(), before);
    }
    let error = joins.cancel(JoinId::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound { what: "join" });
}

/// Shows C-34, JOIN-060.
async fn a_cancel_that_races_with_the_last_step_leaves_one_winner(fixture: Fixture) {
    let (here, there) = (fixture.room.clone(), fixture.again().await);
    for round in 0..30 {
        let join = here.joins().start(&NewJoin::new(1)).await.unwrap();
        let step = here
            .outbox()
            .enqueue(&Message::new("step", "").join(join))
            .await
            .unwrap();
        let owner = OwnerToken::new();
        here.outbox().claim(owner, LEASE, 1).await.unwrap();
        let (joins, outbox) = (here.joins(), there.outbox());
        let cancel = tokio::spawn(async move { joins.cancel(join).await.unwrap() });
        let ack =
            tokio::spawn(async move { outbox.ack(owner, &[step.work_item_id]).await.unwrap() });
        let cancelled = cancel.await.unwrap();
        assert_eq!(ack.await.unwrap().len(), 1, "the ack itself always counts");
        let join = here.joins().get(join).await.unwrap().unwrap();
        let expected = if cancelled {
            (JoinStatus::Cancelled, 0)
        } else {
            (JoinStatus::Completed, 1)
        };
        assert_eq!(
            (join.status, join.completed_steps),
            expected,
            "round {round}"
        );
    }
}

/// Shows OBX-095, JOIN-082.
async fn joins_are_listed_by_grouping_key(fixture: Fixture) {
    let joins = fixture.room.joins();
    let mut mine = Vec::new();
    for _ in 0..5 {
        mine.push(
            joins
                .start(&NewJoin::new(1).grouping_key("customer-7"))
                .await
                .unwrap(),
        );
        joins.start(&NewJoin::new(1)).await.unwrap();
    }
    for other in ["Customer-7", "customer-7 ", "customer-70"] {
        joins
            .start(&NewJoin::new(1).grouping_key(other))
            .await
            .unwrap();
    }

    let ids =
        |listed: Vec<postroom::Join>| listed.into_iter().map(|join| join.id).collect::<Vec<_>>();
    assert_eq!(
        ids(joins.list("customer-7", None, 100).await.unwrap()),
        mine
    );
    assert_eq!(
        ids(joins.list("customer-7", None, 2).await.unwrap()),
        mine[..2]
    );
    assert_eq!(
        ids(joins.list("customer-7", Some(mine[1]), 2).await.unwrap()),
        mine[2..4]
    );
    // All of them, newest first, page by page.
    let all = ids(joins.recent(None, 100).await.unwrap());
    assert_eq!(all.len(), 13);
    assert!(all.is_sorted_by(|one, next| one > next), "{all:?}");
    assert_eq!(ids(joins.recent(None, 4).await.unwrap()), all[..4]);
    assert_eq!(
        ids(joins.recent(Some(all[3]), 100).await.unwrap()),
        all[4..]
    );
    let error = joins.recent(None, 0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "limit" });
    assert_eq!(joins.list("nobody", None, 100).await.unwrap(), []);
    assert_eq!(joins.list("Customer-7", None, 100).await.unwrap().len(), 1);
    for limit in [0, 10_001] {
        let error = joins.list("customer-7", None, limit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "limit" });
    }
    let error = joins.list("", None, 1).await.unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::InvalidArgument {
            param: "grouping_key"
        }
    );
}

/// Shows JOIN-010.
async fn members_are_listed_page_by_page(fixture: Fixture) {
    let joins = fixture.room.joins();
    let (join, other) = (
        joins.start(&NewJoin::new(5)).await.unwrap(),
        joins.start(&NewJoin::new(5)).await.unwrap(),
    );
    let messages = vec![Message::new("step", "").join(join); 5];
    let receipts = fixture.room.outbox().enqueue_many(&messages).await.unwrap();
    fixture
        .room
        .outbox()
        .enqueue(&Message::new("step", "").join(other))
        .await
        .unwrap();
    let mut expected: Vec<_> = receipts.iter().map(|receipt| receipt.message_id).collect();
    expected.sort();

    let mut seen = Vec::new();
    loop {
        let page = joins.members(join, seen.last().copied(), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 2);
        seen.extend(page.into_iter().map(|member| member.message_id));
    }
    assert_eq!(seen, expected);
    assert_eq!(joins.members(JoinId::new(), None, 10).await.unwrap(), []);
    for limit in [0, 10_001] {
        let error = joins.members(join, None, limit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "limit" });
    }
}

/// The specification leaves this to the application, and allows it for finished joins only.
async fn a_cleanup_removes_old_finished_joins_with_their_members_and_no_pending_one(
    fixture: Fixture,
) {
    let joins = fixture.room.joins();
    let pending = joins.start(&NewJoin::new(2)).await.unwrap();
    fixture
        .room
        .outbox()
        .enqueue(&Message::new("step", "").join(pending))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    fixture.room.outbox().claim(owner, LEASE, 10).await.unwrap();
    let cancelled = joins.start(&NewJoin::new(1)).await.unwrap();
    joins.cancel(cancelled).await.unwrap();
    let old = [
        finished(&fixture, true).await,
        finished(&fixture, false).await,
        cancelled,
    ];
    let wait = joins
        .enqueue_wait(&JoinWait::new(old[0], "next", ""))
        .await
        .unwrap();
    fixture
        .age("outbox_join", "last_updated_at", 10 * DAY)
        .await;
    fixture.room.outbox().claim(owner, LEASE, 10).await.unwrap();
    let young = finished(&fixture, true).await;

    assert_eq!(joins.cleanup(20 * DAY).await.unwrap(), 0);
    assert_eq!(joins.cleanup(7 * DAY).await.unwrap(), 2);
    assert!(
        joins.get(old[0]).await.unwrap().is_some(),
        "a message waits for it"
    );
    let waits = fixture.room.outbox().ack(owner, &[wait.work_item_id]).await;
    assert_eq!(waits.unwrap().len(), 1);
    assert_eq!(joins.cleanup(7 * DAY).await.unwrap(), 1);

    for join in old {
        assert_eq!(joins.get(join).await.unwrap(), None);
        assert_eq!(joins.members(join, None, 10).await.unwrap(), []);
    }
    for join in [pending, young] {
        assert_eq!(joins.get(join).await.unwrap().unwrap().id, join);
        assert_eq!(joins.members(join, None, 10).await.unwrap().len(), 1);
    }
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join_member}")
            .await,
        2
    );
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join_wait}")
            .await,
        0
    );
    let error = joins.cleanup(Duration::ZERO).await.unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::OutOfRange {
            param: "older_than"
        }
    );
}

/// Shows C-48.
async fn a_cleanup_of_more_joins_than_one_batch_finishes_the_job(fixture: Fixture) {
    let counted = testkit::mysql::numbers(6000);
    let (numbers, id, now, rows) = match fixture.backend {
        Backend::Sqlite => (
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 6000)",
            "randomblob(16)",
            "unixepoch() * 1000000",
            "n",
        ),
        Backend::Postgres => (
            "WITH n(i) AS (SELECT generate_series(1, 6000))",
            "gen_random_uuid()",
            "now()",
            "n",
        ),
        Backend::MySql => (
            "",
            "UNHEX(LPAD(HEX(seq), 32, '0'))",
            "UNIX_TIMESTAMP() * 1000000",
            counted.as_str(),
        ),
        Backend::SqlServer => (
            "WITH n(i) AS (SELECT TOP (6000) ROW_NUMBER() OVER (ORDER BY (SELECT NULL)) FROM sys.all_columns AS a CROSS JOIN sys.all_columns AS b)",
            "NEWID()",
            "SYSUTCDATETIME()",
            "n",
        ),
    };
    fixture
        .sql(&format!(
            "{numbers} INSERT INTO {{outbox_join}} (join_id, expected_steps, completed_steps, status, created_at, \
             last_updated_at) SELECT {id}, 1, 1, 1, {now}, {now} FROM {rows}"
        ))
        .await;
    if fixture.backend == Backend::MySql {
        let keys = "INSERT INTO {outbox_join_key} SELECT join_id FROM {outbox_join}";
        fixture.sql(keys).await;
    }
    fixture
        .age("outbox_join", "last_updated_at", 10 * DAY)
        .await;
    assert_eq!(fixture.room.joins().cleanup(DAY).await.unwrap(), 6000);
    assert_eq!(
        fixture.number("SELECT count(*) FROM {outbox_join}").await,
        0
    );
}

/// Shows C-27.
async fn an_ack_after_its_join_was_cleared_away_is_only_an_ack(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let join = joins.start(&NewJoin::new(2)).await.unwrap();
    let step = outbox
        .enqueue(&Message::new("step", "").join(join))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    outbox.claim(owner, LEASE, 1).await.unwrap();
    joins.cancel(join).await.unwrap();
    fixture.age("outbox_join", "last_updated_at", DAY).await;
    assert_eq!(joins.cleanup(Duration::from_secs(60)).await.unwrap(), 1);

    assert_eq!(
        outbox.ack(owner, &[step.work_item_id]).await.unwrap().len(),
        1
    );

    let error = joins.attach(join, step.message_id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound { what: "join" });
    let other = joins.start(&NewJoin::new(1)).await.unwrap();
    assert_eq!(
        joins.attach(other, step.message_id).await.unwrap(),
        Attached::MessageAlreadyDone
    );
}

/// Shows C-54.
async fn the_databases_functions_count_for_any_language(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(2)).await.unwrap();
    let steps = fixture
        .room
        .outbox()
        .enqueue_many(&vec![Message::new("step", "").join(join); 2])
        .await
        .unwrap();
    let owner = OwnerToken::new();
    let claim =
        format!("SELECT count(*) FROM {{outbox_claim}}('{owner}', interval '30 seconds', 10)");
    assert_eq!(fixture.number(&claim).await, 2);
    let settled = |function: &str, step: usize, rest: &str| {
        let id = steps[step].work_item_id;
        format!("SELECT count(*) FROM {{{function}}}('{owner}', ARRAY['{id}']::uuid[], {rest})")
    };
    assert_eq!(fixture.number(&settled("outbox_ack", 0, "'sql'")).await, 1);
    assert_eq!(
        fixture
            .number(&settled("outbox_fail", 1, "ARRAY['no'], 'sql'"))
            .await,
        2,
        "the message and its join"
    );
    let join = joins.get(join).await.unwrap().unwrap();
    assert_eq!(
        (join.completed_steps, join.failed_steps, join.status),
        (1, 1, JoinStatus::Failed)
    );
}

/// A join of one step that has been acked or failed.
async fn finished(fixture: &Fixture, well: bool) -> JoinId {
    let join = fixture.room.joins().start(&NewJoin::new(1)).await.unwrap();
    let outbox = fixture.room.outbox();
    let step = outbox
        .enqueue(&Message::new("step", "").join(join))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    outbox.claim(owner, LEASE, 10).await.unwrap();
    let settled = if well {
        outbox.ack(owner, &[step.work_item_id]).await
    } else {
        outbox.fail(owner, &[step.work_item_id], "no").await
    };
    assert_eq!(settled.unwrap().len(), 1);
    join
}

testkit::mount!(
    a_pending_join_can_be_cancelled_and_is_frozen_then,
    a_finished_join_cannot_be_cancelled_and_an_unknown_one_is_an_error,
    a_cancel_that_races_with_the_last_step_leaves_one_winner,
    joins_are_listed_by_grouping_key,
    members_are_listed_page_by_page,
    a_cleanup_removes_old_finished_joins_with_their_members_and_no_pending_one,
    a_cleanup_of_more_joins_than_one_batch_finishes_the_job,
    an_ack_after_its_join_was_cleared_away_is_only_an_ack;
    postgres: the_databases_functions_count_for_any_language
);
