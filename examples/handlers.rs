//! Handlers and what they may answer: a type and closures, typed JSON, follow-ups, retries, "not ready",
//! and errors of three classes. In memory, in a second.
//!
//! ```sh
//! cargo run -p postroom --example handlers
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postroom::{
    Backoff, Delivery, Handler, HandlerError, Inbound, Json, List, Message, Options, Outcome,
    State, done,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    id: u32,
    street: String,
}

/// A handler as a type: for one that has parts of its own, and tests of its own.
struct Invoices {
    printer_is_warm: Arc<AtomicBool>,
}

impl Handler for Invoices {
    async fn handle(&self, delivery: Delivery) -> Result<Outcome, HandlerError> {
        if !self.printer_is_warm.swap(true, Ordering::SeqCst) {
            println!("   invoice.print: not ready, the printer warms up (no attempt is used up)");
            return Ok(Outcome::NotReady(Some(Duration::from_millis(20))));
        }
        println!("   invoice.print: done on attempt {}", delivery.attempt());
        Ok(Outcome::Done)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::new("sqlite::memory:").deploy(true);
    let room = options.connect().await?;

    let dispatcher = room
        .dispatcher()
        .retry(Backoff::default().max_attempts(3))
        // A closure takes what it asks for. This one takes its payload as a type of ours, and answers
        // with what follows: the ack and the new messages are one transaction.
        .on("order.created", |order: Json<Order>| async move {
            println!(
                "   order.created: order {} goes to {}",
                order.id, order.street
            );
            Outcome::enqueue([
                Message::new("invoice.print", order.id.to_string()),
                Message::new("courier.call", order.street.clone()),
            ])
        })
        .on(
            "invoice.print",
            Invoices {
                printer_is_warm: Arc::default(),
            },
        )
        .on("courier.call", call_courier)
        .on_inbound("payment.received", |delivery: Delivery| async move {
            println!("   payment.received: {}", delivery.message_id());
        });

    println!("1. An order, and a payment that arrives twice");
    let order = Order {
        id: 7,
        street: "Elm Street".into(),
    };
    room.outbox()
        .enqueue(&Message::json("order.created", &order)?)
        .await?;
    let payment = Inbound::new("bank", "payment-1", "payment.received", "{}");
    for _ in 0..2 {
        room.inbox().enqueue(&payment).await?;
    }
    let running = dispatcher.start()?;
    wait_for(&room, 3).await?;

    println!("2. Orders that cannot be handled end as dead letters, each with its reason");
    for street in ["Nowhere", "the moon"] {
        let order = Order {
            id: 8,
            street: street.into(),
        };
        room.outbox()
            .enqueue(&Message::json("order.created", &order)?)
            .await?;
    }
    room.outbox()
        .enqueue(&Message::new("order.created", "not JSON at all"))
        .await?;
    wait_for(&room, 10).await?;
    for message in room.outbox().list(&List::new(State::Dead)).await? {
        let error = message.progress.last_error.unwrap_or_default();
        println!("   dead: {} because {error}", message.topic);
    }

    let report = running.stop().await;
    println!(
        "\n{} done, {} retried, {} dead.",
        report.done, report.retried, report.dead
    );
    let counts = room.outbox().counts().await?;
    assert_eq!((counts.done, counts.dead, counts.ready), (7, 3, 0));
    assert_eq!(room.inbox().counts().await?.done, 1);
    Ok(())
}

/// A plain function is a handler too. Its errors say whose fault it was, which decides how long it is
/// worth trying.
async fn call_courier(delivery: Delivery) -> Result<Outcome, HandlerError> {
    let soon = Duration::from_millis(20);
    match (delivery.payload(), delivery.attempt()) {
        // Nobody's fault in the message: tried for a day, however often, and no attempt is used up.
        ("Elm Street", 1) if delivery.progress().attempt_count == 0 => {
            println!("   courier.call: the line is dead, again soon");
            Err(HandlerError::infrastructure("the line is dead").retry_after(soon))
        }
        // No retry can help: dead at once.
        ("Nowhere", _) => Err(HandlerError::permanent("there is no such street")),
        // Any other error is the message's or the code's fault: three attempts here, ten by default.
        // `?` makes one of any error type; `Outcome::Retry` asks for the same without one.
        ("the moon", 1) => Ok(Outcome::Retry(Some(soon))),
        ("the moon", attempt) => {
            let error = HandlerError::business(format!("attempt {attempt} found no courier"));
            Err(error.retry_after(soon))
        }
        _ => {
            println!("   courier.call: done on attempt {}", delivery.attempt());
            done()
        }
    }
}

/// Waits until so many messages of the outbox are done or dead.
async fn wait_for(room: &postroom::Postroom, settled: u64) -> Result<(), Box<dyn Error>> {
    for _ in 0..1000 {
        let counts = room.outbox().counts().await?;
        if counts.done + counts.dead == settled {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err("the messages were not handled in ten seconds".into())
}
