//! Making messages steps of a join.

use std::time::Duration;

use postroom::{
    Attached, ErrorKind, Join, JoinId, JoinStatus, Joins, Message, MessageId, NewJoin, OwnerToken,
    Receipt, StepStatus,
};
use testkit::Fixture;

const LEASE: Duration = Duration::from_secs(30);

/// Shows JOIN-010, OBX-083.
async fn attaching_makes_a_pending_member(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    let message = enqueue(&fixture).await.message_id;

    let before = fixture.now().await;
    assert_eq!(
        joins.attach(join, message).await.unwrap(),
        Attached::Pending
    );
    let after = fixture.now().await;

    let members = joins.members(join, None, 10).await.unwrap();
    assert_eq!(members.len(), 1);
    assert_eq!(
        (members[0].message_id, members[0].status),
        (message, StepStatus::Pending)
    );
    assert!(before <= members[0].created_at && members[0].created_at <= after);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join_member} WHERE status = 0")
            .await,
        1
    );
}

/// Shows JOIN-011, OBX-084.
async fn attaching_again_changes_nothing(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(2)).await.unwrap();
    let message = enqueue(&fixture).await.message_id;
    joins.attach(join, message).await.unwrap();
    let before = (
        get(&joins, join).await,
        joins.members(join, None, 10).await.unwrap(),
    );

    for _ in 0..3 {
        assert_eq!(
            joins.attach(join, message).await.unwrap(),
            Attached::Pending
        );
    }
    assert_eq!(
        (
            get(&joins, join).await,
            joins.members(join, None, 10).await.unwrap()
        ),
        before
    );

    settle(&fixture, true).await;
    let counted = (
        get(&joins, join).await,
        joins.members(join, None, 10).await.unwrap(),
    );
    assert_eq!(
        joins.attach(join, message).await.unwrap(),
        Attached::MessageAlreadyDone
    );
    assert_eq!(
        (
            get(&joins, join).await,
            joins.members(join, None, 10).await.unwrap()
        ),
        counted
    );
}

/// Shows JOIN-011, JOIN-060.
async fn thirty_two_tasks_attach_one_member(fixture: Fixture) {
    let rooms = [fixture.room.clone(), fixture.again().await];
    let join = rooms[0].joins().start(&NewJoin::new(2)).await.unwrap();
    let message = enqueue(&fixture).await.message_id;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..32 {
        let joins = rooms[task % 2].joins();
        tasks.spawn(async move { joins.attach(join, message).await.unwrap() });
    }
    assert_eq!(tasks.join_all().await, [Attached::Pending; 32]);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join_member}")
            .await,
        1
    );
}

/// Shows JOIN-012.
async fn attaching_to_an_unknown_join_is_an_error(fixture: Fixture) {
    let joins = fixture.room.joins();
    let message = enqueue(&fixture).await.message_id;
    let error = joins.attach(JoinId::new(), message).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound { what: "join" });

    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    let nil = uuid::Uuid::nil();
    let error = joins.attach(nil.into(), message).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument { param: "join" });
    let error = joins.attach(join, nil.into()).await.unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::InvalidArgument { param: "message" }
    );
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join_member}")
            .await,
        0
    );
}

/// Shows JOIN-013, C-27.
async fn attaching_leaves_the_counters_alone_and_says_what_became_of_the_message(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(4)).await.unwrap();
    let done = enqueue(&fixture).await.message_id;
    settle(&fixture, true).await;
    let dead = enqueue(&fixture).await.message_id;
    settle(&fixture, false).await;
    let live = enqueue(&fixture).await.message_id;
    let before = get(&joins, join).await;

    for (message, expected) in [
        (live, Attached::Pending),
        (done, Attached::MessageAlreadyDone),
        (dead, Attached::MessageAlreadyFailed),
        (MessageId::new(), Attached::UnknownMessage),
    ] {
        assert_eq!(joins.attach(join, message).await.unwrap(), expected);
    }

    assert_eq!(get(&joins, join).await, before);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join_member} WHERE status = 0")
            .await,
        4
    );
}

/// Shows C-27.
async fn reconcile_counts_what_was_attached_too_late(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(3)).await.unwrap();
    let done = enqueue(&fixture).await.message_id;
    settle(&fixture, true).await;
    let dead = enqueue(&fixture).await.message_id;
    settle(&fixture, false).await;
    let live = enqueue(&fixture).await.message_id;
    for message in [done, dead, live] {
        joins.attach(join, message).await.unwrap();
    }

    assert_eq!(joins.reconcile(join).await.unwrap(), 2);

    let reconciled = get(&joins, join).await;
    assert_eq!(
        (reconciled.completed_steps, reconciled.failed_steps),
        (1, 1)
    );
    assert_eq!(reconciled.status, JoinStatus::Pending);
    assert_eq!(
        joins.reconcile(join).await.unwrap(),
        0,
        "nothing is counted twice"
    );
    assert_eq!(get(&joins, join).await, reconciled);
    assert_eq!(status(&joins, join, done).await, StepStatus::Completed);
    assert_eq!(status(&joins, join, dead).await, StepStatus::Failed);
    assert_eq!(status(&joins, join, live).await, StepStatus::Pending);

    settle(&fixture, true).await;
    assert_eq!(get(&joins, join).await.status, JoinStatus::Failed);
    let error = joins.reconcile(JoinId::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound { what: "join" });
}

/// Shows C-27, JOIN-041.
async fn reconcile_completes_a_join(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    let message = enqueue(&fixture).await.message_id;
    settle(&fixture, true).await;
    joins.attach(join, message).await.unwrap();
    assert_eq!(joins.reconcile(join).await.unwrap(), 1);
    assert_eq!(get(&joins, join).await.status, JoinStatus::Completed);
}

/// Shows C-27, JOIN-060.
async fn a_thousand_attaches_that_race_with_their_ack_are_all_counted_once(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let join = joins.start(&NewJoin::new(1000)).await.unwrap();
    let messages = vec![Message::new("topic", ""); 1000];
    outbox.enqueue_many(&messages).await.unwrap();
    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 1000).await.unwrap();

    let mut answers = Vec::new();
    for chunk in claimed.chunks(25) {
        let mut races = tokio::task::JoinSet::new();
        for message in chunk {
            let (joins, outbox, message) = (joins.clone(), outbox.clone(), message.clone());
            races.spawn(async move {
                let (attached, acked) =
                    tokio::join!(joins.attach(join, message.message_id), async {
                        let ids = [message.id];
                        outbox.ack(owner, &ids).await
                    });
                assert_eq!(acked.unwrap().len(), 1);
                attached.unwrap()
            });
        }
        answers.extend(races.join_all().await);
    }
    let late: u64 = answers
        .iter()
        .map(|answer| u64::from(*answer == Attached::MessageAlreadyDone))
        .sum();
    assert!(
        answers
            .iter()
            .all(|answer| *answer != Attached::UnknownMessage)
    );

    let before = get(&joins, join).await;
    assert_eq!(
        u64::from(before.completed_steps),
        1000 - late,
        "the ack has counted all that came in time"
    );
    assert_eq!(joins.reconcile(join).await.unwrap(), late);
    let after = get(&joins, join).await;
    assert_eq!(
        (after.completed_steps, after.status),
        (1000, JoinStatus::Completed)
    );
    let counted = "SELECT count(*) FROM {outbox_join_member} WHERE status = 1";
    assert_eq!(fixture.number(counted).await, 1000);
}

/// Shows JOIN-010, JOIN-042, C-28.
async fn a_finished_join_takes_new_members_but_counts_them_no_more(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    fixture
        .room
        .outbox()
        .enqueue(&Message::new("topic", "").join(join))
        .await
        .unwrap();
    settle(&fixture, true).await;
    let finished = get(&joins, join).await;
    assert_eq!(finished.status, JoinStatus::Completed);

    let late = enqueue(&fixture).await.message_id;
    assert_eq!(joins.attach(join, late).await.unwrap(), Attached::Pending);
    assert_eq!(status(&joins, join, late).await, StepStatus::Pending);
    settle(&fixture, false).await;

    assert_eq!(status(&joins, join, late).await, StepStatus::Failed);
    assert_eq!(get(&joins, join).await, finished);
}

/// Shows JOIN-010, OBX-083, C-27.
async fn a_message_becomes_a_step_in_the_transaction_that_enqueues_it(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let join = joins.start(&NewJoin::new(3)).await.unwrap();
    let one = outbox
        .enqueue(&Message::new("topic", "").join(join).join(join))
        .await
        .unwrap();
    let many = outbox
        .enqueue_many(&[
            Message::new("topic", "").join(join),
            Message::new("topic", "").join(join),
        ])
        .await
        .unwrap();

    let members = joins.members(join, None, 10).await.unwrap();
    let mut expected: Vec<_> = std::iter::once(one)
        .chain(many)
        .map(|receipt| receipt.message_id)
        .collect();
    expected.sort();
    assert_eq!(
        members
            .iter()
            .map(|member| member.message_id)
            .collect::<Vec<_>>(),
        expected
    );

    settle(&fixture, true).await;
    assert_eq!(get(&joins, join).await.status, JoinStatus::Completed);
}

/// Shows JOIN-012, C-27.
async fn an_enqueue_into_an_unknown_join_writes_nothing(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let known = joins.start(&NewJoin::new(1)).await.unwrap();
    let wrong = Message::new("topic", "").join(known).join(JoinId::new());
    for error in [
        outbox.enqueue(&wrong).await.unwrap_err(),
        outbox
            .enqueue_many(&[Message::new("topic", ""), wrong.clone()])
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound { what: "join" });
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {outbox}").await, 0);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join_member}")
            .await,
        0
    );
}

/// Shows JOIN-030, JOIN-031, C-26.
async fn joins_go_by_the_message_id_that_the_caller_chose(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let join = joins.start(&NewJoin::new(2)).await.unwrap();
    let chosen = MessageId::new();
    let receipt = outbox
        .enqueue(&Message::new("topic", "").message_id(chosen))
        .await
        .unwrap();
    assert_ne!(receipt.work_item_id.as_uuid(), chosen.as_uuid());

    assert_eq!(joins.attach(join, chosen).await.unwrap(), Attached::Pending);
    let by_work_item = MessageId::from_uuid(receipt.work_item_id.as_uuid());
    let elsewhere = joins.start(&NewJoin::new(1)).await.unwrap();
    joins.attach(elsewhere, by_work_item).await.unwrap();
    settle(&fixture, true).await;

    assert_eq!(get(&joins, join).await.completed_steps, 1);
    assert_eq!(
        get(&joins, elsewhere).await.completed_steps,
        0,
        "a work item id is no message id"
    );
    let late = joins.start(&NewJoin::new(1)).await.unwrap();
    assert_eq!(
        joins.attach(late, chosen).await.unwrap(),
        Attached::MessageAlreadyDone
    );
    let joined = Message::new("topic", "")
        .message_id(MessageId::new())
        .join(join);
    outbox.enqueue(&joined).await.unwrap();
    settle(&fixture, false).await;
    assert_eq!(get(&joins, join).await.status, JoinStatus::Failed);
}

/// Shows JOIN-030, C-26.
async fn a_message_attached_before_it_is_enqueued_counts_when_it_is_acked(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    let message = MessageId::new();
    assert_eq!(
        joins.attach(join, message).await.unwrap(),
        Attached::UnknownMessage
    );
    fixture
        .room
        .outbox()
        .enqueue(&Message::new("topic", "").message_id(message))
        .await
        .unwrap();
    assert_eq!(
        joins.reconcile(join).await.unwrap(),
        0,
        "it is not done yet"
    );
    settle(&fixture, true).await;
    assert_eq!(get(&joins, join).await.status, JoinStatus::Completed);
}

async fn enqueue(fixture: &Fixture) -> Receipt {
    fixture
        .room
        .outbox()
        .enqueue(&Message::new("topic", ""))
        .await
        .unwrap()
}

/// Claims everything and acks or fails it in one call.
async fn settle(fixture: &Fixture, well: bool) {
    let outbox = fixture.room.outbox();
    let owner = OwnerToken::new();
    let ids: Vec<_> = outbox
        .claim(owner, LEASE, 100)
        .await
        .unwrap()
        .iter()
        .map(|message| message.id)
        .collect();
    let settled = if well {
        outbox.ack(owner, &ids).await
    } else {
        outbox.fail(owner, &ids, "broken").await
    };
    assert_eq!(settled.unwrap().len(), ids.len());
    assert!(!ids.is_empty());
}

async fn get(joins: &Joins, join: JoinId) -> Join {
    joins.get(join).await.unwrap().unwrap()
}

async fn status(joins: &Joins, join: JoinId, message: MessageId) -> StepStatus {
    let members = joins.members(join, None, 100).await.unwrap();
    members
        .into_iter()
        .find(|member| member.message_id == message)
        .unwrap()
        .status
}

testkit::mount!(
    attaching_makes_a_pending_member,
    attaching_again_changes_nothing,
    thirty_two_tasks_attach_one_member,
    attaching_to_an_unknown_join_is_an_error,
    attaching_leaves_the_counters_alone_and_says_what_became_of_the_message,
    reconcile_counts_what_was_attached_too_late,
    reconcile_completes_a_join,
    a_thousand_attaches_that_race_with_their_ack_are_all_counted_once,
    a_finished_join_takes_new_members_but_counts_them_no_more,
    a_message_becomes_a_step_in_the_transaction_that_enqueues_it,
    an_enqueue_into_an_unknown_join_writes_nothing,
    joins_go_by_the_message_id_that_the_caller_chose,
    a_message_attached_before_it_is_enqueued_counts_when_it_is_acked,
);
