//! Scheduled work over two SQLite files, one of which is broken: messages are processed every second, and
//! what has been done for a second is deleted every second. In production that is five seconds and a week.
//!
//! ```sh
//! cargo run -p postroom --example scheduled_cleanup
//! ```

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use postroom::jobs::{Cleanup, Job, Jobs, Processing};
use postroom::{Delivery, Dispatcher, HandlerError, Message, Options, Postroom, done};

const EVERY_SECOND: &str = "* * * * * ?";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let shop = open(&folder.path().join("shop.db"), true).await?;
    let broken = open(&folder.path().join("broken.db"), false).await?;
    println!("Two stores: a shop, and one that nobody has deployed.\n");

    println!("1. Twelve orders are enqueued, one of them without a customer");
    for order in 1..=12 {
        let customer = if order == 7 { "nobody" } else { "somebody" };
        let message = Message::new("order.created", customer).correlation(order);
        shop.outbox().enqueue(&message).await?;
    }

    println!("2. The jobs start: processing and cleanup, every second");
    let jobs = || {
        Jobs::new()
            .store(&broken)
            .store(&shop)
            .dispatcher(ship)
            .processing(Processing::default().cron(EVERY_SECOND))
            .outbox_cleanup(Cleanup::older_than(Duration::from_secs(1)).cron(EVERY_SECOND))
    };
    let running = jobs().start()?;
    until(async || {
        let counts = shop.outbox().counts().await?;
        Ok(counts.ready + counts.in_flight == 0)
    })
    .await?;
    println!("   every order was handled");
    until(async || Ok(shop.outbox().counts().await?.done == 0)).await?;
    println!("   and what is done was deleted a second later");
    running.stop().await;

    let counts = shop.outbox().counts().await?;
    println!(
        "3. {} dead letter stays until somebody looks at it",
        counts.dead
    );
    assert_eq!((counts.ready, counts.done, counts.dead), (0, 0, 1));

    println!("4. By hand, a job says how it went in each store");
    let report = jobs().run_once(Job::Reaping).await?;
    for store in &report.stores {
        let name = store.store.rsplit('/').next().unwrap_or_default();
        match &store.result {
            Ok(count) => println!("   {name}: {count} leases freed"),
            Err(error) => println!("   {name}: {error}"),
        }
    }
    assert_eq!(report.failures().count(), 1);
    assert_eq!(report.stores[1].result, Ok(0));

    println!("\nEvery number was as it should be.");
    Ok(())
}

/// Handles orders; one without a customer can never be shipped.
fn ship(room: &Postroom) -> Dispatcher {
    room.dispatcher()
        .on("order.created", |order: Delivery| async move {
            if order.payload() == "nobody" {
                return Err(HandlerError::permanent("no customer"));
            }
            done()
        })
}

async fn open(file: &Path, deploy: bool) -> Result<Postroom, postroom::Error> {
    let url = format!("sqlite:{}", file.display());
    Options::new(url).deploy(deploy).connect().await
}

async fn until(
    condition: impl AsyncFn() -> Result<bool, postroom::Error>,
) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    while !condition().await? {
        if started.elapsed() > Duration::from_secs(30) {
            return Err("it took longer than 30 seconds".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
