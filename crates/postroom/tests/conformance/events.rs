//! Domain events: recorded by aggregates, and written by a unit of work with the rows of their
//! aggregates.

mod modules;
mod shop;
mod types;

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postroom::events::{Recorded, Saved, StoredEvent, UnitOfWork};
use postroom::tx::Executor;
use postroom::{Abandon, Dialect, Error, ErrorKind, MessageId, OwnerToken, State, WorkItemId};
use shop::{Custom, Order, OrderEvent, Shop, ShopError, Stock, order_types, since_1970};
use testkit::{Backend, Fixture, LEASE};
use uuid::Uuid;

/// Shows DEEP-01.
async fn an_event_commits_with_the_business_row(fixture: Fixture) {
    let room = fixture.room.clone();
    let mut shop = Shop::open(fixture.clone()).await;
    let mut order = Order::placed(7);

    let mut transaction = shop.transaction_with_order(7).await;
    let saved = UnitOfWork::new(&room)
        .collect(&mut order)
        .save_in(&mut transaction)
        .await
        .unwrap();
    assert_eq!(fixture.rows("outbox").await, 0, "not before the commit");
    transaction.commit().await;
    saved.committed();

    assert_eq!(shop.orders_and_messages().await, (1, 1));
    assert!(order.events.is_empty(), "events leave an aggregate once");
}

/// Shows DEEP-01.
async fn a_rollback_takes_both_and_the_aggregate_keeps_its_events(fixture: Fixture) {
    let room = fixture.room.clone();
    let mut shop = Shop::open(fixture).await;
    let mut order = Order::placed(7);
    let recorded = order.events.clone();

    let mut transaction = shop.transaction_with_order(7).await;
    let saved = UnitOfWork::new(&room)
        .collect(&mut order)
        .save_in(&mut transaction)
        .await
        .unwrap();
    assert_eq!(saved.receipts().len(), 1);
    transaction.rollback().await;
    saved.rolled_back();

    assert_eq!(shop.orders_and_messages().await, (0, 0));
    assert_eq!(order.events, recorded);

    shop.save(7, &mut order).await;
    assert_eq!(shop.orders_and_messages().await, (1, 1));
    let messages = shop.claim().await;
    assert_eq!(
        messages[0].message_id,
        recorded.iter().next().unwrap().id,
        "a retry keeps the id"
    );
}

/// Nobody knows whether a commit went through when the connection broke; whoever tries again is told
/// that the event is there.
///
/// Shows DEEP-01, DEEP-02.
async fn a_commit_that_was_not_confirmed_does_not_double_the_event(fixture: Fixture) {
    let room = fixture.room.clone();
    let mut shop = Shop::open(fixture).await;
    let mut order = Order::placed(7);
    let mut transaction = shop.transaction_with_order(7).await;
    let unconfirmed: Saved<'_> = UnitOfWork::new(&room)
        .collect(&mut order)
        .save_in(&mut transaction)
        .await
        .unwrap();
    drop(unconfirmed);
    transaction.commit().await;

    let mut transaction = shop.transaction_with_order(8).await;
    let error = UnitOfWork::new(&room)
        .collect(&mut order)
        .save_in(&mut transaction)
        .await
        .unwrap_err();
    assert!(matches!(error, ShopError::Database));
    transaction.rollback().await;
    assert_eq!(shop.orders_and_messages().await, (1, 1));
}

/// Shows DEEP-02.
async fn the_row_of_an_event_says_all_about_it(fixture: Fixture) {
    let mut shop = Shop::open(fixture.clone()).await;
    let before = SystemTime::now();
    let mut order = Order::placed(7);
    let id = order.ids()[0];
    let recorded_at = order.events.iter().next().unwrap().occurred_at;
    assert!((before..=SystemTime::now()).contains(&recorded_at));
    shop.save(7, &mut order).await;

    let literal = fixture.literal(id);
    assert_eq!(
        fixture
            .live(&format!("id = {literal} AND message_id = {literal}"))
            .await,
        1
    );
    let outbox = fixture.room.outbox();
    let message = outbox
        .get(WorkItemId::from_uuid(id.as_uuid()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(message.topic, "orders.placed");
    assert_eq!(message.payload, r#"{"Placed":{"order":7}}"#);
    assert_eq!(message.headers["event-type"], "orders.placed");
    let occurred_on = StoredEvent::from(&message).occurred_on().unwrap();
    assert_eq!(since_1970(occurred_on), since_1970(recorded_at));
    assert_eq!(
        (message.state, message.progress.attempt_count),
        (State::Ready, 0)
    );

    let owner = OwnerToken::new();
    outbox.claim(owner, LEASE, 1).await.unwrap();
    outbox
        .abandon(owner, &[message.id], Abandon::default().error("no route"))
        .await
        .unwrap();
    let progress = outbox.get(message.id).await.unwrap().unwrap().progress;
    assert_eq!(progress.attempt_count, 1);
    assert_eq!(progress.last_error.as_deref(), Some("no route"));
    assert!(progress.last_attempt_at.is_some());
}

/// Shows DEEP-02.
async fn an_event_may_bring_its_own_id_time_and_topic(fixture: Fixture) {
    let mut shop = Shop::open(fixture).await;
    let id = MessageId::from_uuid(Uuid::from_u128(0x7a));
    let mut stock = Stock::with(Custom {
        id: Some(id),
        occurred_at: Some(UNIX_EPOCH + Duration::from_micros(86_400_000_001)),
        ..Custom::new()
    });
    shop.save(7, &mut stock).await;

    let messages = shop.claim().await;
    let message = &messages[0];
    assert_eq!(
        (message.message_id, message.id.as_uuid()),
        (id, id.as_uuid())
    );
    assert_eq!(message.topic, "warehouse");
    assert_eq!(message.payload, r#"{"amount":3}"#);
    assert_eq!(message.headers["event-type"], "stock.taken");
    assert_eq!(
        message.headers["occurred-on"],
        "1970-01-02T00:00:00.000001Z"
    );
}

/// Shows DEEP-01.
async fn an_event_that_is_not_externalized_leaves_no_row(fixture: Fixture) {
    let room = fixture.room.clone();
    let mut shop = Shop::open(fixture).await;
    let mut order = Order::default();
    let note = OrderEvent::Noted {
        note: "gift".to_owned(),
    };
    let noted = order.events.record(note.clone());
    let placed = order.events.record(OrderEvent::Placed { order: 7 });
    let heard: Mutex<Vec<Recorded<OrderEvent>>> = Mutex::default();

    let mut transaction = shop.transaction_with_order(7).await;
    let saved = UnitOfWork::new(&room)
        .collect_with(&mut order, |recorded| heard.lock().unwrap().push(recorded))
        .save_in(&mut transaction)
        .await
        .unwrap();
    transaction.commit().await;
    assert!(heard.lock().unwrap().is_empty(), "not before `committed`");
    let receipts = saved.committed();

    assert_eq!(
        receipts
            .iter()
            .map(|receipt| receipt.message_id)
            .collect::<Vec<_>>(),
        [placed]
    );
    assert_eq!(shop.orders_and_messages().await, (1, 1));
    let heard = heard.into_inner().unwrap();
    assert_eq!(heard.len(), 1);
    assert_eq!((heard[0].id, &heard[0].event), (noted, &note));
    assert!(order.events.is_empty());
}

/// Nothing to tell is nothing to write.
///
/// Shows DEEP-01.
async fn a_unit_of_work_without_externalized_events_touches_nothing(fixture: Fixture) {
    let room = fixture.room.clone();
    let mut shop = Shop::open(fixture).await;
    let (mut silent, mut unchanged) = (Order::default(), Order::default());
    silent.events.record(OrderEvent::Noted {
        note: String::new(),
    });

    let mut transaction = shop.transaction_with_order(7).await;
    let saved = UnitOfWork::new(&room)
        .collect(&mut silent)
        .collect(&mut unchanged)
        .save_in(&mut transaction)
        .await
        .unwrap();
    assert!(transaction.statements.is_empty());
    transaction.commit().await;
    assert!(saved.committed().is_empty());
    assert_eq!(shop.orders_and_messages().await, (1, 0));
}

/// Aggregates of different types are saved together, under one correlation id; the rows come in the
/// order of collection. Any executor will do.
///
/// Shows DEEP-01, DEEP-20.
async fn several_aggregates_are_saved_as_one(fixture: Fixture) {
    let room = fixture.room.clone();
    let mut shop = Shop::open(fixture).await;
    let (mut order, mut stock) = (Order::placed(7), Stock::with(Custom::new()));
    order.events.record(OrderEvent::Placed { order: 8 });
    let mut ids = order.ids();
    ids.extend(stock.events.iter().map(|recorded| recorded.id));

    let mut transaction = shop.transaction_with_order(7).await;
    let saved = UnitOfWork::new(&room)
        .correlation("request-42")
        .collect(&mut order)
        .collect(&mut stock)
        .save_in(&mut transaction)
        .await
        .unwrap();
    if transaction.dialect() == Dialect::Postgres {
        assert_eq!(transaction.statements.len(), 1, "one statement for all");
    }
    transaction.commit().await;
    let receipts = saved.committed();

    let written: Vec<_> = receipts.iter().map(|receipt| receipt.message_id).collect();
    assert_eq!(written, ids);
    assert!(order.events.is_empty() && stock.events.is_empty());
    let messages = shop.claim().await;
    assert_eq!(messages.len(), 3);
    assert!(
        messages
            .iter()
            .all(|message| message.correlation_id.as_deref() == Some("request-42"))
    );
}

/// Makes an event wrong.
type Spoil<'a> = &'a dyn Fn(&mut Custom);

/// Every refusal names what is wrong, happens before anything is written, leaves the caller's
/// transaction usable and the events where they are.
///
/// Shows DEEP-01, DEEP-02.
async fn an_event_that_is_wrong_is_refused_before_anything_is_written(fixture: Fixture) {
    let room = fixture.room.clone();
    let mut shop = Shop::open(fixture).await;
    let year_10000 = UNIX_EPOCH + Duration::from_secs(253_402_300_800);
    let last_second = year_10000 - Duration::from_secs(1);
    let wrong: [(&str, Spoil<'_>); 8] = [
        ("event_type", &|event| event.event_type = ""),
        ("event_type", &|event| event.event_type = "a\0"),
        ("topic", &|event| event.topic = String::new()),
        ("topic", &|event| event.topic = "x".repeat(256)),
        ("id", &|event| event.id = Some(Uuid::nil().into())),
        ("occurred_at", &|event| event.occurred_at = Some(year_10000)),
        ("occurred_at", &|event| {
            event.occurred_at = Some(last_second)
        }),
        ("event", &|event| {
            event.by_pair = [((1, 2), "hunter2".to_owned())].into();
        }),
    ];
    for (id, (param, spoil)) in (0..).zip(wrong) {
        let mut event = Custom::new();
        spoil(&mut event);
        let (mut good, mut bad) = (Order::placed(7), Stock::with(event));
        let mut transaction = shop.transaction_with_order(id).await;
        let error = UnitOfWork::new(&room)
            .collect(&mut good)
            .collect(&mut bad)
            .save_in(&mut transaction)
            .await
            .unwrap_err();
        assert_eq!(error.param(), Some(param), "{error:?}");
        assert!(!format!("{error:?}").contains("hunter2"));
        assert!(transaction.statements.is_empty());
        transaction.commit().await;
        assert_eq!((good.events.len(), bad.events.len()), (1, 1));
    }
    assert_eq!(shop.orders_and_messages().await, (8, 0));
}

/// Shows DEEP-02.
async fn a_copy_of_an_aggregate_is_not_saved_with_it(fixture: Fixture) {
    let room = fixture.room.clone();
    let mut shop = Shop::open(fixture).await;
    let mut stock = Stock::with(Custom::new());
    let mut copy = stock.clone();

    let mut transaction = shop.transaction_with_order(7).await;
    let error = UnitOfWork::new(&room)
        .collect(&mut stock)
        .collect(&mut copy)
        .save_in(&mut transaction)
        .await
        .unwrap_err();
    assert_eq!(error.param(), Some("event_id"));
    assert!(transaction.statements.is_empty());
}

/// Shows DEEP-01.
async fn a_write_that_the_database_refuses_leaves_the_events_for_a_retry(fixture: Fixture) {
    let room = fixture.room.clone();
    let mut shop = Shop::open(fixture.clone()).await;
    let (mut order, mut stock) = (Order::placed(7), Stock::with(Custom::new()));
    fixture.refuse("INSERT", "outbox").await;

    let mut transaction = shop.transaction_with_order(7).await;
    let error = UnitOfWork::new(&room)
        .collect(&mut order)
        .collect(&mut stock)
        .save_in(&mut transaction)
        .await
        .unwrap_err();
    assert!(matches!(error, ShopError::Database));
    transaction.rollback().await;
    assert_eq!((order.events.len(), stock.events.len()), (1, 1));

    fixture.allow("INSERT").await;
    shop.save(7, &mut order).await;
    assert_eq!(shop.orders_and_messages().await, (1, 1));
}

/// Our errors arrive in the error type of the caller's client.
///
/// Shows DEEP-01.
async fn a_refusal_arrives_in_the_clients_own_error(fixture: Fixture) {
    let mut stock = Stock::with(Custom {
        topic: String::new(),
        ..Custom::new()
    });
    let work = UnitOfWork::new(&fixture.room).collect(&mut stock);
    let ours = match fixture.backend {
        Backend::Sqlite => {
            let mut connection = fixture.sqlite();
            let mut transaction = connection.transaction().unwrap();
            match work.save_in(&mut transaction).await.unwrap_err() {
                rusqlite::Error::ToSqlConversionFailure(error) => {
                    *error.downcast::<Error>().unwrap()
                }
                other => panic!("{other}"),
            }
        }
        Backend::Postgres => {
            let mut client = fixture.postgres().await;
            let mut transaction = client.transaction().await.unwrap();
            work.save_in(&mut transaction).await.unwrap_err()
        }
        Backend::MySql => {
            let mut connection = fixture.mysql().await;
            let mut transaction = testkit::mysql::begin(&mut connection).await;
            testkit::mysql::ours(work.save_in(&mut transaction).await.unwrap_err())
        }
        Backend::SqlServer => {
            let mut transaction = fixture.sqlserver().await;
            transaction.begin_transaction().await.unwrap();
            work.save_in(&mut transaction).await.unwrap_err()
        }
    };
    assert_eq!(ours.kind(), ErrorKind::InvalidArgument { param: "topic" });
}

/// Shows DEEP-01.
async fn a_transaction_of_another_kind_of_database_is_refused(fixture: Fixture) {
    let mut order = Order::placed(7);
    let mut connection = rusqlite::Connection::open_in_memory().unwrap();
    let mut transaction = connection.transaction().unwrap();
    let error = UnitOfWork::new(&fixture.room)
        .collect(&mut order)
        .save_in(&mut transaction)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("the store is postgres"),
        "{error}"
    );
    assert_eq!(order.events.len(), 1);
}

/// A save can run in a task that moves between threads, as web servers do it.
///
/// Shows DEEP-01.
async fn a_save_can_be_spawned(fixture: Fixture) {
    let mut client = fixture.postgres().await;
    let room = fixture.room.clone();
    tokio::spawn(async move {
        let mut order = Order::placed(7);
        let mut transaction = client.transaction().await.unwrap();
        let saved = UnitOfWork::new(&room)
            .collect(&mut order)
            .save_in(&mut transaction)
            .await
            .unwrap();
        transaction.commit().await.unwrap();
        saved.committed();
    })
    .await
    .unwrap();
    assert_eq!(fixture.rows("outbox").await, 1);
}

/// Gave up means dead, with the reason; only what succeeded is ever deleted, at once if so wished.
///
/// Shows C-51.
async fn an_event_that_is_given_up_stays_with_its_reason(fixture: Fixture) {
    let forgetful = fixture.options().keep_done(false).connect().await.unwrap();
    let mut shop = Shop::open(fixture.clone()).await;
    shop.save(1, &mut Order::placed(1)).await;
    shop.save(2, &mut Order::placed(2)).await;

    let (outbox, owner) = (forgetful.outbox(), OwnerToken::new());
    let claimed = outbox.claim(owner, LEASE, 10).await.unwrap();
    outbox.ack(owner, &[claimed[0].id]).await.unwrap();
    outbox
        .fail(owner, &[claimed[1].id], "the broker refuses it")
        .await
        .unwrap();

    assert_eq!(outbox.get(claimed[0].id).await.unwrap(), None);
    let dead = outbox.get(claimed[1].id).await.unwrap().unwrap();
    assert_eq!(dead.state, State::Dead);
    assert_eq!(
        dead.progress.last_error.as_deref(),
        Some("the broker refuses it")
    );
    assert_eq!(
        order_types().decode(&dead).unwrap(),
        OrderEvent::Placed { order: 2 }
    );
}

/// What an aggregate prints of itself does not give its events away.
///
/// Shows DEEP-02.
#[test]
fn the_content_of_recorded_events_does_not_show() {
    let mut order = Order::placed(7);
    order.events.record(OrderEvent::Noted {
        note: "hunter2".to_owned(),
    });
    let shown = format!("{order:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(order.ids().iter().all(|id| shown.contains(&id.to_string())));
}

testkit::mount!(
    an_event_commits_with_the_business_row,
    a_rollback_takes_both_and_the_aggregate_keeps_its_events,
    a_commit_that_was_not_confirmed_does_not_double_the_event,
    the_row_of_an_event_says_all_about_it,
    an_event_may_bring_its_own_id_time_and_topic,
    an_event_that_is_not_externalized_leaves_no_row,
    a_unit_of_work_without_externalized_events_touches_nothing,
    several_aggregates_are_saved_as_one,
    an_event_that_is_wrong_is_refused_before_anything_is_written,
    a_copy_of_an_aggregate_is_not_saved_with_it,
    a_write_that_the_database_refuses_leaves_the_events_for_a_retry,
    a_refusal_arrives_in_the_clients_own_error,
    an_event_that_is_given_up_stays_with_its_reason;
    postgres: a_transaction_of_another_kind_of_database_is_refused, a_save_can_be_spawned,
);
