//! Several modules in one process: each has its own messages, and what one tells reaches the other once.

use std::time::Duration;

use postroom::events::{Modules, StoredEvent, UnitOfWork};
use postroom::{Arrival, ErrorKind, Inbound, OwnerToken, Postroom, State, WorkItemId};
use testkit::{Backend, Fixture, LEASE, eventually};

use super::shop::{Custom, Order, OrderEvent, Shop, Stock, order_types, since_1970};

/// Two stores in the database of the fixture, each with its own schema.
async fn two_modules(fixture: &Fixture) -> Modules {
    let open = async |name: &str| {
        let schema = match &fixture.schema {
            Some(schema) => format!("{schema}_{name}"),
            None => name.to_owned(),
        };
        let options = fixture.options().schema(&schema).deploy(true);
        options.connect().await.unwrap()
    };
    Modules::new()
        .module("orders", open("orders").await)
        .unwrap()
        .module("billing", open("billing").await)
        .unwrap()
}

/// Even the same event, in both modules at once, is two messages: each module sees its own.
///
/// Shows DEEP-02, DEEP-03.
async fn modules_in_one_database_never_see_one_anothers_messages(fixture: Fixture) {
    let modules = two_modules(&fixture).await;
    let (orders, billing) = (
        modules.room("orders").unwrap(),
        modules.room("billing").unwrap(),
    );
    let mut shop = Shop::open(fixture.clone()).await;
    let mut stock = Stock::with(Custom::new());
    let mut copy = stock.clone();
    let id = WorkItemId::from_uuid(stock.events.iter().next().unwrap().id.as_uuid());

    let mut transaction = shop.transaction_with_order(7).await;
    let of_orders = UnitOfWork::new(orders)
        .collect(&mut stock)
        .save_in(&mut transaction)
        .await
        .unwrap();
    let of_billing = UnitOfWork::new(billing)
        .collect(&mut copy)
        .save_in(&mut transaction)
        .await
        .unwrap();
    transaction.commit().await;
    of_orders.committed();
    of_billing.committed();
    assert_eq!(fixture.rows("outbox").await, 0, "nor does a third store");

    let owner = OwnerToken::new();
    let claimed = orders.outbox().claim(owner, LEASE, 10).await.unwrap();
    assert_eq!(claimed.len(), 1);
    orders.outbox().ack(owner, &[id]).await.unwrap();
    billing.outbox().ack(owner, &[id]).await.unwrap();

    let state = async |room: &Postroom| room.outbox().get(id).await.unwrap().unwrap().state;
    assert_eq!(state(orders).await, State::Done);
    assert_eq!(state(billing).await, State::Ready);
}

/// Shows DEEP-03.
async fn a_module_is_added_once_and_shares_its_store_with_none(fixture: Fixture) {
    let modules = two_modules(&fixture).await;
    let names: Vec<&str> = modules.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["billing", "orders"]);

    let refused = |name: &str, room: &Postroom| {
        let error = modules.clone().module(name, room.clone()).unwrap_err();
        (error.kind(), error.to_string())
    };
    let orders = modules.room("orders").unwrap();
    let (kind, text) = refused("orders", &fixture.room);
    assert_eq!(kind, ErrorKind::AlreadyExists { what: "module" });
    assert!(text.contains(orders.identifier()) && text.contains(fixture.room.identifier()));
    let (kind, text) = refused("shipping", orders);
    assert_eq!(kind, ErrorKind::AlreadyExists { what: "store" });
    assert!(
        text.contains("`orders`") && text.contains("`shipping`"),
        "{text}"
    );
    let (kind, _) = refused("", &fixture.room);
    assert_eq!(kind, ErrorKind::InvalidArgument { param: "name" });

    let unknown = modules.room("Orders").unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound { what: "module" });
    assert!(unknown.to_string().contains("Orders"));
    let modules = modules.module("shipping", fixture.room.clone()).unwrap();
    assert_eq!(modules.iter().count(), 3);
}

/// Schemas differ by case on PostgreSQL. Elsewhere they are parts of table names, which do not, or may not.
///
/// Shows DEEP-03.
async fn schemas_that_make_the_same_tables_are_one_store(fixture: Fixture) {
    let open = async |schema: &str| fixture.options().schema(schema).connect().await.unwrap();
    let modules = Modules::new().module("one", open("shop").await).unwrap();
    let other = modules.module("two", open("SHOP").await);
    match fixture.backend {
        Backend::Sqlite | Backend::MySql | Backend::SqlServer => assert_eq!(
            other.unwrap_err().kind(),
            ErrorKind::AlreadyExists { what: "store" }
        ),
        Backend::Postgres => assert_eq!(other.unwrap().iter().count(), 2),
    }
}

/// From the aggregate of one module to the consumer of another: written with its row, published,
/// taken in once though it comes twice, decoded, and cleaned up.
///
/// Shows DEEP-01, DEEP-11.
async fn an_event_travels_from_one_module_to_another(fixture: Fixture) {
    let modules = two_modules(&fixture).await;
    let billing = modules.room("billing").unwrap();
    let mut shop = Shop::open(fixture.clone()).await;
    shop.fixture.room = modules.room("orders").unwrap().clone();
    let mut order = Order::placed(7);
    let (id, occurred_at) = (
        order.ids()[0],
        order.events.iter().next().unwrap().occurred_at,
    );
    shop.save(7, &mut order).await;

    let outbox = shop.fixture.room.outbox();
    let owner = OwnerToken::new();
    let message = outbox.claim(owner, LEASE, 10).await.unwrap().remove(0);
    let mut inbound = Inbound::new(
        "orders",
        message.message_id.to_string(),
        &message.topic,
        &message.payload,
    );
    for (name, value) in &message.headers {
        inbound = inbound.header(name, value);
    }
    let inbox = billing.inbox();
    assert_eq!(inbox.enqueue(&inbound).await.unwrap().arrival, Arrival::New);
    outbox.ack(owner, &[message.id]).await.unwrap();

    let taken = inbox.claim(owner, LEASE, 10).await.unwrap().remove(0);
    assert_eq!(taken.id.message_id, id.to_string());
    assert_eq!(
        order_types().decode(&taken).unwrap(),
        OrderEvent::Placed { order: 7 }
    );
    let occurred_on = StoredEvent::from(&taken).occurred_on().unwrap();
    assert_eq!(since_1970(occurred_on), since_1970(occurred_at));
    inbox.ack(owner, &taken.id).await.unwrap();
    assert_eq!(
        inbox.enqueue(&inbound).await.unwrap().arrival,
        Arrival::AlreadyDone
    );

    let moment = Duration::from_micros(1);
    eventually(async || (outbox.cleanup(moment).await.unwrap() == 1).then_some(())).await;
    assert_eq!(outbox.counts().await.unwrap(), postroom::Counts::default());
}

testkit::mount!(
    modules_in_one_database_never_see_one_anothers_messages,
    a_module_is_added_once_and_shares_its_store_with_none,
    schemas_that_make_the_same_tables_are_one_store,
    an_event_travels_from_one_module_to_another,
);
