//! Domain events from an aggregate to another module, in one SQLite file: what is committed goes out,
//! what is rolled back does not.
//!
//! ```sh
//! cargo run -p postroom --example domain_events
//! ```

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use postroom::events::{Aggregate, DomainEvent, EventTypes, Events, Modules, UnitOfWork};
use postroom::{Arrival, Inbound, Message, Options, OwnerToken, Postroom, tx};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

/// What can happen to an order.
#[derive(Serialize)]
#[serde(untagged)]
enum OrderEvent {
    Placed(OrderPlaced),
    Discounted { percent: u8 },
}

/// What other modules are told of a placed order. They read it with this type or one of their own.
#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order: i64,
    total: i64,
}

impl DomainEvent for OrderEvent {
    fn event_type(&self) -> &'static str {
        match self {
            Self::Placed(_) => "orders.placed",
            Self::Discounted { .. } => "orders.discounted",
        }
    }

    /// Discounts are our own business.
    fn is_externalized(&self) -> bool {
        matches!(self, Self::Placed(_))
    }
}

struct Order {
    id: i64,
    total: i64,
    events: Events<OrderEvent>,
}

impl Order {
    fn place(id: i64, price: i64, percent: u8) -> Self {
        let total = price - price * i64::from(percent) / 100;
        let mut events = Events::new();
        if percent > 0 {
            events.record(OrderEvent::Discounted { percent });
        }
        events.record(OrderEvent::Placed(OrderPlaced { order: id, total }));
        Self { id, total, events }
    }
}

impl Aggregate for Order {
    type Event = OrderEvent;

    fn events(&mut self) -> &mut Events<OrderEvent> {
        &mut self.events
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let modules = Modules::new()
        .module("orders", open(&file, "orders").await?)?
        .module("billing", open(&file, "billing").await?)?;
    let (orders, billing) = (modules.room("orders")?, modules.room("billing")?);
    let mut shop = Connection::open(&file)?;
    shop.execute_batch(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER NOT NULL);
         CREATE TABLE invoices (id INTEGER PRIMARY KEY, total INTEGER NOT NULL)",
    )?;
    println!("Two modules, orders and billing, share one file; each has its own tables.\n");

    println!("1. An order and its event are written in one transaction");
    let mut order = Order::place(7, 100, 10);
    save(&mut shop, orders, &mut order, Payment::Accepted)?;
    println!("   committed: the order let its events go");
    assert!(order.events.is_empty());

    println!("2. A payment is declined: order and event are rolled back");
    let mut order = Order::place(8, 50, 0);
    save(&mut shop, orders, &mut order, Payment::Declined)?;
    println!("   rolled back: the order still has its event");
    assert_eq!(order.events.len(), 1);
    assert_eq!(orders.outbox().counts().await?.ready, 1);
    save(&mut shop, orders, &mut order, Payment::Accepted)?;
    println!("   tried again, with the same id, and committed");
    assert_eq!(
        (count(&shop, "orders")?, orders.outbox().counts().await?),
        (2, counts(2, 0, 0))
    );
    assert_eq!(billing.outbox().counts().await?, counts(0, 0, 0));

    println!("3. A message that no type stands for is given up alone");
    let unknown = Message::new("orders.moved", "{}").header("event-type", "orders.moved");
    orders.outbox().enqueue(&unknown).await?;
    publish(orders, billing).await?;
    assert_eq!(orders.outbox().counts().await?, counts(0, 2, 1));

    println!("4. Billing writes invoices, once for each event");
    bill(&mut shop, billing).await?;
    assert_eq!(count(&shop, "invoices")?, 2);

    println!("\nEvery number was as it should be.");
    Ok(())
}

async fn open(file: &Path, schema: &str) -> Result<Postroom, postroom::Error> {
    Options::new(format!("sqlite:{}", file.display()))
        .schema(schema)
        .deploy(true)
        .connect()
        .await
}

#[derive(PartialEq)]
enum Payment {
    Accepted,
    Declined,
}

fn save(
    shop: &mut Connection,
    orders: &Postroom,
    order: &mut Order,
    payment: Payment,
) -> rusqlite::Result<()> {
    let mut transaction = shop.transaction()?;
    transaction.execute(
        "INSERT INTO orders (id, total) VALUES (?1, ?2)",
        [order.id, order.total],
    )?;
    let saved = tx::now(
        UnitOfWork::new(orders)
            .correlation(format!("order-{}", order.id))
            .collect_with(order, |recorded| {
                println!("   stayed inside: {}", recorded.event.event_type());
            })
            .save_in(&mut transaction),
    )?;
    if payment == Payment::Declined {
        transaction.rollback()?;
        saved.rolled_back();
        return Ok(());
    }
    transaction.commit()?;
    for receipt in saved.committed() {
        println!("   goes out: event {}", receipt.message_id);
    }
    Ok(())
}

/// Stands in for a dispatcher and a broker that delivers everything twice.
async fn publish(orders: &Postroom, billing: &Postroom) -> Result<(), postroom::Error> {
    let types = EventTypes::new().register("orders.placed", |event: OrderPlaced| event)?;
    let (outbox, owner) = (orders.outbox(), OwnerToken::new());
    for message in outbox.claim(owner, Duration::from_secs(30), 50).await? {
        if let Err(error) = types.decode(&message) {
            println!("   dead: {error}");
            outbox
                .fail(owner, &[message.id], &error.to_string())
                .await?;
            continue;
        }
        let id = message.message_id.to_string();
        let mut inbound = Inbound::new("orders", id, &message.topic, &message.payload);
        for (name, value) in &message.headers {
            inbound = inbound.header(name, value);
        }
        for delivery in ["first", "second"] {
            let arrival = billing.inbox().enqueue(&inbound).await?.arrival;
            println!("   the {delivery} delivery to billing is {arrival:?}");
            assert_eq!(arrival == Arrival::New, delivery == "first");
        }
        outbox.ack(owner, &[message.id]).await?;
    }
    Ok(())
}

async fn bill(shop: &mut Connection, billing: &Postroom) -> Result<(), Box<dyn Error>> {
    let types = EventTypes::new().register("orders.placed", |event: OrderPlaced| event)?;
    let (inbox, owner) = (billing.inbox(), OwnerToken::new());
    for message in inbox.claim(owner, Duration::from_secs(30), 50).await? {
        let placed = types.decode(&message)?;
        let written = shop.execute(
            "INSERT INTO invoices (id, total) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            [placed.order, placed.total],
        )?;
        assert_eq!(written, 1);
        inbox.ack(owner, &message.id).await?;
        println!(
            "   invoice for order {}: {} in total",
            placed.order, placed.total
        );
    }
    Ok(())
}

fn counts(ready: u64, done: u64, dead: u64) -> postroom::Counts {
    postroom::Counts {
        ready,
        in_flight: 0,
        done,
        dead,
    }
}

fn count(shop: &Connection, table: &str) -> rusqlite::Result<i64> {
    shop.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
        row.get(0)
    })
}
