//! Two operations at once that must not lose or double anything between them.

use std::time::{Duration, SystemTime};

use postroom::{
    Arrival, Attached, ErrorKind, Inbound, InboxMessageId, InboxState, List, Message, NewJoin,
    OwnerToken, WorkItemId,
};
use testkit::{Backend, Fixture};

const LEASE: Duration = Duration::from_secs(30);

/// A purge and a revive of the same dead message: whoever is faster, it is never forgotten while it
/// is live.
///
/// Shows IBX-001, IBX-014, C-39.
async fn a_purge_that_loses_to_a_revive_forgets_nothing(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for round in 0..60 {
        let id = InboxMessageId::new("stripe", round.to_string());
        let inbound = Inbound::new("stripe", round.to_string(), "paid", "");
        inbox.enqueue(&inbound).await.unwrap();
        inbox.mark_dead(&id).await.unwrap();
        let (one, two, key) = (inbox.clone(), inbox.clone(), id.clone());
        let revive = tokio::spawn(async move { one.revive(&key).await.unwrap() });
        let key = id.clone();
        let purge = tokio::spawn(async move { two.purge(&key).await.unwrap() });
        let (revived, purged) = (revive.await.unwrap(), purge.await.unwrap());

        assert_eq!(revived as u64 + purged, 1, "round {round}");
        let arrival = inbox.enqueue(&inbound).await.unwrap().arrival;
        let expected = if revived == 1 {
            Arrival::Replaced
        } else {
            Arrival::New
        };
        assert_eq!(arrival, expected, "round {round}");
        inbox.mark_processed(&id).await.unwrap();
    }
    let live = fixture.number("SELECT count(*) FROM {inbox}").await;
    assert_eq!(live, 0);
}

/// Shows JOIN-023, C-27, C-47.
async fn an_attach_that_meets_a_purge_is_counted_or_told_that_the_message_is_gone(
    fixture: Fixture,
) {
    let (outbox, joins) = (fixture.room.outbox(), fixture.room.joins());
    for round in 0..60 {
        let join = joins.start(&NewJoin::new(1)).await.unwrap();
        let receipt = outbox.enqueue(&Message::new("step", "")).await.unwrap();
        let owner = OwnerToken::new();
        outbox.claim(owner, LEASE, 1).await.unwrap();
        outbox
            .fail(owner, &[receipt.work_item_id], "no")
            .await
            .unwrap();
        let (one, two) = (joins.clone(), outbox.clone());
        let attach =
            tokio::spawn(async move { one.attach(join, receipt.message_id).await.unwrap() });
        let purge = tokio::spawn(async move { two.purge(&[receipt.work_item_id]).await.unwrap() });
        let (attached, purged) = (attach.await.unwrap(), purge.await.unwrap());

        assert_eq!(purged, 1);
        joins.reconcile(join).await.unwrap();
        let failed = joins.get(join).await.unwrap().unwrap().failed_steps;
        let expected = u32::from(attached == Attached::MessageAlreadyFailed);
        assert_eq!(failed, expected, "round {round}: {attached:?}");
    }
}

/// Shows IBX-102.
async fn a_list_is_one_look_at_the_queue(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for number in 0..20 {
        let inbound = Inbound::new("stripe", number.to_string(), "paid", "");
        inbox.enqueue(&inbound).await.unwrap();
    }
    let flipping = inbox.clone();
    let flips = tokio::spawn(async move {
        for _ in 0..100 {
            let owner = OwnerToken::new();
            let claimed = flipping.claim(owner, LEASE, 5).await.unwrap();
            let ids: Vec<WorkItemId> = claimed
                .iter()
                .filter_map(|message| message.work_item_id)
                .collect();
            let at_once = postroom::Abandon::after(Duration::from_micros(1));
            flipping.abandon(owner, &ids, at_once).await.unwrap();
        }
    });
    while !flips.is_finished() {
        let listed = inbox
            .list(&List::new(InboxState::Processing))
            .await
            .unwrap();
        assert_eq!(listed.len(), 20);
    }
    flips.await.unwrap();
}

/// Redelivery replaces the content, and keeps the place in the queue.
///
/// Shows IBX-029.
async fn a_redelivery_does_not_send_a_message_to_the_back(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let inbound = |id: &str| Inbound::new("stripe", id, "paid", "");
    inbox.enqueue(&inbound("a")).await.unwrap();
    fixture
        .age("inbox", "created_at", Duration::from_secs(10))
        .await;
    inbox.enqueue(&inbound("b")).await.unwrap();
    inbox.enqueue(&inbound("a")).await.unwrap();

    let claimed = inbox.claim(OwnerToken::new(), LEASE, 1).await.unwrap();
    assert_eq!(claimed[0].id.message_id, "a");
}

/// Shows C-53, OBX-012.
async fn times_and_topics_that_a_database_cannot_hold_are_refused_by_name(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let ancient = SystemTime::UNIX_EPOCH - Duration::from_secs(250_000_000_000);
    let error = outbox
        .enqueue(&Message::new("a", "").due_at(ancient))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "due_at" });
    let inbound = Inbound::new("s", "1", "a", "").due_at(ancient);
    let error = fixture.room.inbox().enqueue(&inbound).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "due_at" });
    let error = outbox.cleanup_before(ancient).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "before" });
    let error = outbox
        .list(&List::new(postroom::State::Ready).topic("a\0b"))
        .await
        .unwrap_err();
    assert_eq!(error.param(), Some("topic"));
    assert_eq!(fixture.number("SELECT count(*) FROM {outbox}").await, 0);
}

/// Shows C-32.
async fn what_follows_an_ack_may_reuse_its_id(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let receipt = outbox.enqueue(&Message::new("a", "")).await.unwrap();
    let owner = OwnerToken::new();
    outbox.claim(owner, LEASE, 1).await.unwrap();

    let again = Message::new("b", "").id(receipt.work_item_id);
    outbox
        .ack_and_enqueue(owner, receipt.work_item_id, &[again])
        .await
        .unwrap();

    let message = outbox.get(receipt.work_item_id).await.unwrap().unwrap();
    assert_eq!(
        (message.topic.as_str(), message.state),
        ("b", postroom::State::Ready)
    );
    assert_eq!(outbox.counts().await.unwrap().done, 1);
}

/// Under another isolation level the functions could not see what happened before they got their
/// lock: they refuse, and our own connections choose the right one.
///
/// Shows OBX-098.
async fn another_default_isolation_level_loses_no_steps(fixture: Fixture) {
    let schema = fixture.schema.clone().unwrap();
    let user = format!("rr_{schema}");
    fixture
        .sql(&format!(
            "CREATE ROLE \"{user}\" LOGIN SUPERUSER;
             ALTER ROLE \"{user}\" SET default_transaction_isolation = 'repeatable read'"
        ))
        .await;
    let url = fixture
        .url
        .replacen("://postroom@", &format!("://{user}@"), 1);
    let options = || postroom::Options::new(&url).schema(&schema);
    let owner = OwnerToken::new();
    let receipt = fixture
        .room
        .outbox()
        .enqueue(&Message::new("a", ""))
        .await
        .unwrap();
    fixture.room.outbox().claim(owner, LEASE, 1).await.unwrap();

    let pooled = options()
        .prepared_statements(false)
        .connect()
        .await
        .unwrap();
    let error = pooled
        .outbox()
        .ack(owner, &[receipt.work_item_id])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("READ COMMITTED"), "{error}");

    let own = options().connect().await.unwrap();
    let acked = own
        .outbox()
        .ack(owner, &[receipt.work_item_id])
        .await
        .unwrap();
    assert_eq!(acked, [receipt.work_item_id]);
    fixture.sql(&format!("DROP ROLE \"{user}\"")).await;
}

/// Shows OBX-108, OBX-123.
async fn the_owner_of_a_schema_deploys_without_more_rights(fixture: Fixture) {
    let fixture = Fixture::empty(fixture.backend).await;
    let schema = fixture.schema.clone().unwrap();
    let user = format!("own_{schema}");
    fixture
        .sql(&format!(
            "CREATE ROLE \"{user}\" LOGIN; CREATE SCHEMA \"{schema}\" AUTHORIZATION \"{user}\""
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

    room.deploy().await.unwrap();
    room.deploy().await.unwrap();
    room.verify().await.unwrap();
}

/// Shows OBX-108.
async fn an_index_that_was_dropped_by_hand_is_named(fixture: Fixture) {
    let index = match fixture.backend {
        Backend::Sqlite => "DROP INDEX outbox_ready",
        Backend::Postgres => "DROP INDEX {outbox_ready}",
        Backend::MySql => "DROP INDEX outbox_ready ON {outbox}",
        Backend::SqlServer => "DROP INDEX [IX_Outbox_Claim] ON {Outbox}",
    };
    fixture.sql(index).await;

    for error in [
        fixture.room.verify().await.unwrap_err(),
        fixture.room.deploy().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains("outbox_ready"), "{error}");
    }
}

testkit::mount!(
    a_purge_that_loses_to_a_revive_forgets_nothing,
    an_attach_that_meets_a_purge_is_counted_or_told_that_the_message_is_gone,
    a_list_is_one_look_at_the_queue,
    a_redelivery_does_not_send_a_message_to_the_back,
    times_and_topics_that_a_database_cannot_hold_are_refused_by_name,
    what_follows_an_ack_may_reuse_its_id,
    an_index_that_was_dropped_by_hand_is_named;
    postgres: another_default_isolation_level_loses_no_steps,
    the_owner_of_a_schema_deploys_without_more_rights
);
