//! Fan-out and join: one message becomes many, and when all of them are done, one goes on. Once with
//! success, once with a step that fails.
//!
//! ```sh
//! cargo run -p postroom --example join
//! ```

use std::error::Error;
use std::time::Duration;

use postroom::{
    Delivery, HandlerError, JoinStatus, JoinWait, Json, Message, NewJoin, Options, Outcome,
    Postroom, Tx, done,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Report {
    customer: u32,
    tables: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::new("sqlite::memory:").deploy(true);
    let room = options.connect().await?;
    let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let failed = sender.clone();

    // Nobody registers a handler for the wait message: the dispatcher has one.
    let running = room
        .dispatcher()
        .on("report.requested", fan_out)
        .on("table.extract", extract)
        .on("report.send", move |delivery: Delivery| {
            let _ = sender.send(format!("sent to customer {}", delivery.payload()));
            async {}
        })
        .on("report.failed", move |delivery: Delivery| {
            let _ = failed.send(format!("an apology to customer {}", delivery.payload()));
            async {}
        })
        .start()?;

    for (customer, tables) in [
        (7, ["customers", "orders", "parcels"]),
        (8, ["customers", "no such table", "orders"]),
    ] {
        println!(
            "Customer {customer} wants a report of {} tables",
            tables.len()
        );
        let tables = tables.map(str::to_owned).to_vec();
        let request = Message::json("report.requested", &Report { customer, tables })?;
        room.outbox().enqueue(&request).await?;
        let end = tokio::time::timeout(Duration::from_secs(10), ended.recv()).await?;
        println!("   {}", end.unwrap_or_default());
        show(&room, customer).await?;
    }

    let report = running.stop().await;
    assert_eq!((report.done, report.dead), (11, 1));
    println!("{} messages done, {} dead", report.done, report.dead);
    Ok(())
}

/// One message becomes a join, a step for each table, and a message that waits for them. All of it is in
/// the transaction of the ack: a worker that dies here leaves nothing half done.
async fn fan_out(
    delivery: Delivery,
    report: Json<Report>,
    mut tx: Tx,
) -> Result<Outcome, HandlerError> {
    let (joins, outbox) = (delivery.room().joins(), delivery.room().outbox());
    let steps = i32::try_from(report.tables.len())?;
    let new = NewJoin::new(steps).grouping_key(format!("customer-{}", report.customer));
    let join = joins.start_in(&mut tx, &new).await?;
    let steps: Vec<Message> = report
        .tables
        .iter()
        .map(|table| Message::new("table.extract", table).join(join))
        .collect();
    outbox.enqueue_many_in(&mut tx, &steps).await?;
    let customer = report.customer.to_string();
    let wait = JoinWait::new(join, "report.send", &customer).on_fail("report.failed", &customer);
    joins.enqueue_wait_in(&mut tx, &wait).await?;
    done()
}

/// A step. Its ack, or its failure, moves the join's counters in the same transaction.
async fn extract(delivery: Delivery) -> Result<Outcome, HandlerError> {
    if delivery.payload().starts_with("no such") {
        println!("   a table is not there");
        return Err(HandlerError::permanent("there is no such table"));
    }
    println!("   extracted {}", delivery.payload());
    done()
}

async fn show(room: &Postroom, customer: u32) -> Result<(), Box<dyn Error>> {
    let key = format!("customer-{customer}");
    for join in room.joins().list(&key, None, 10).await? {
        println!(
            "   the join is {:?}: {} completed, {} failed, of {}\n",
            join.status, join.completed_steps, join.failed_steps, join.expected_steps
        );
        let expected = if customer == 7 {
            JoinStatus::Completed
        } else {
            JoinStatus::Failed
        };
        assert_eq!(join.status, expected);
    }
    Ok(())
}
