//! The same program on every database: a webhook that comes twice, an order that fans out into two steps,
//! and one message that goes on when both are done. It takes the URL of the database; without one it runs
//! in memory.
//!
//! ```sh
//! cargo run -p postroom --all-features --example databases
//! cargo run -p postroom --all-features --example databases -- sqlite:example.db
//! cargo run -p postroom --all-features --example databases -- postgres://postgres@127.0.0.1/postgres
//! cargo run -p postroom --all-features --example databases -- mysql://root@127.0.0.1/shop
//! cargo run -p postroom --all-features --example databases -- sqlserver://sa:PASSWORD@127.0.0.1/shop
//! ```
//!
//! Its tables are in a schema of their own, `postroom_example` (a prefix where there are no schemas), and
//! stay there: run it again, and it finds them.

use std::error::Error;
use std::time::Duration;

use postroom::{
    Delivery, HandlerError, Inbound, JoinWait, Message, NewJoin, Options, Outcome, Tx, done,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("sqlite::memory:");
    let options = Options::new(url).schema("postroom_example").deploy(true);
    let room = options.connect().await?;
    println!("On {}:", room.dialect().name());

    let (shipped, mut orders) = tokio::sync::mpsc::unbounded_channel();
    let running = room
        .dispatcher()
        .on_inbound("order.paid", fan_out)
        .on("parcel.pack", |_: Delivery| async {})
        .on("invoice.print", |_: Delivery| async {})
        .on("order.ship", move |delivery: Delivery| {
            let _ = shipped.send(delivery.payload().to_owned());
            async {}
        })
        .start()?;

    // The bank's message has an id of its own, and comes twice: it counts once.
    let order = format!("order-{}", postroom::MessageId::new());
    let paid = Inbound::new("bank", &order, "order.paid", &order);
    for _ in 0..2 {
        let accepted = room.inbox().enqueue(&paid).await?;
        println!("   the bank says that it is paid: {accepted:?}");
    }

    let ended = tokio::time::timeout(Duration::from_secs(30), orders.recv()).await?;
    assert_eq!(ended.as_deref(), Some(order.as_str()));
    println!("   packed, invoiced, and then shipped");
    let report = running.stop().await;
    let steps = room.joins().list(&order, None, 10).await?;
    assert_eq!((steps.len(), steps[0].completed_steps), (1, 2));
    println!("{} messages done, {} dead", report.done, report.dead);
    Ok(())
}

/// The steps and what waits for them are written in one transaction with the ack of the payment.
async fn fan_out(delivery: Delivery, mut tx: Tx) -> Result<Outcome, HandlerError> {
    let (joins, outbox) = (delivery.room().joins(), delivery.room().outbox());
    let order = delivery.payload();
    let join = joins
        .start_in(&mut tx, &NewJoin::new(2).grouping_key(order))
        .await?;
    let steps = ["parcel.pack", "invoice.print"].map(|topic| Message::new(topic, order).join(join));
    outbox.enqueue_many_in(&mut tx, &steps).await?;
    let wait = JoinWait::new(join, "order.ship", order);
    joins.enqueue_wait_in(&mut tx, &wait).await?;
    done()
}
