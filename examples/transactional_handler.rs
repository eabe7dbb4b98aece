//! Exactly once in one database: a handler's own rows and the ack of its message are one transaction.
//! Half of the runs fail here after they have written, and no payment is booked twice.
//!
//! ```sh
//! cargo run -p postroom --example transactional_handler
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postroom::{
    Delivery, Dispatcher, HandlerError, Message, Options, Outcome, Postroom, Tx, done, tx,
};
use rusqlite::Connection;

const PAYMENTS: u32 = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bank.db");
    let url = format!("sqlite:{}", file.display());
    let room = Options::new(url).deploy(true).connect().await?;
    Connection::open(&file)?
        .execute_batch("CREATE TABLE ledger (message TEXT NOT NULL, amount INTEGER NOT NULL)")?;

    println!("1. The handler asks for a transaction of the store: `Tx`");
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let handler = move |delivery: Delivery, tx: Tx| book(delivery, tx, Arc::clone(&counted));
    handle(&room, room.dispatcher().on("payment", handler)).await?;
    tell(&file, &runs)?;

    println!("2. The handler opens a transaction of its own, and acks in it: `delivery.ack_in`");
    let runs = Arc::new(AtomicUsize::new(0));
    let (counted, path) = (Arc::clone(&runs), file.clone());
    let handler =
        move |delivery: Delivery| book_yourself(delivery, path.clone(), Arc::clone(&counted));
    handle(&room, room.dispatcher().on("payment", handler)).await?;
    tell(&file, &runs)
}

/// Books the payment, and fails every first time after the row was written. The dispatcher rolls back
/// what a failed handler wrote, and commits what a good one wrote together with its ack.
async fn book(
    delivery: Delivery,
    mut tx: Tx,
    runs: Arc<AtomicUsize>,
) -> Result<Outcome, HandlerError> {
    runs.fetch_add(1, Ordering::SeqCst);
    let row = vec![delivery.message_id().into(), delivery.payload().into()];
    tx.execute("INSERT INTO ledger VALUES (?1, CAST(?2 AS INTEGER))", row)
        .await?;
    if delivery.attempt() == 1 {
        return Err(again("the power went out after the row was written"));
    }
    done()
}

/// The same with a connection that is not postroom's. rusqlite is not async, so it has a thread to
/// itself. A worker that dies between the commit and the end of its handler has acked all the same.
async fn book_yourself(
    delivery: Delivery,
    file: PathBuf,
    runs: Arc<AtomicUsize>,
) -> Result<Outcome, HandlerError> {
    runs.fetch_add(1, Ordering::SeqCst);
    let attempt = delivery.attempt();
    tokio::task::spawn_blocking(move || -> Result<(), HandlerError> {
        let mut connection = Connection::open(file)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        let mut transaction = connection.transaction()?;
        transaction.execute(
            "INSERT INTO ledger VALUES (?1, CAST(?2 AS INTEGER))",
            [delivery.message_id().as_str(), delivery.payload()],
        )?;
        if attempt == 1 {
            return Err(again("the power went out before the commit"));
        }
        tx::now(delivery.ack_in(&mut transaction))?;
        Ok(transaction.commit()?)
    })
    .await??;
    done()
}

fn again(error: &str) -> HandlerError {
    HandlerError::business(error).retry_after(Duration::from_millis(20))
}

/// Enqueues payments of 1 to 20, and lets the dispatcher work until all are done.
async fn handle(room: &Postroom, dispatcher: Dispatcher) -> Result<(), Box<dyn Error>> {
    let before = room.outbox().counts().await?.done;
    let payments: Vec<Message> = (1..=PAYMENTS)
        .map(|amount| Message::new("payment", amount.to_string()))
        .collect();
    room.outbox().enqueue_many(&payments).await?;
    let all_done = async {
        while room
            .outbox()
            .counts()
            .await
            .is_ok_and(|counts| counts.done < before + u64::from(PAYMENTS))
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let report = dispatcher.run_until(all_done).await?;
    println!(
        "   {} runs failed, {} payments are done",
        report.retried, report.done
    );
    assert_eq!(report.done, u64::from(PAYMENTS));
    Ok(())
}

/// Counts the ledger, and empties it for the next.
fn tell(file: &Path, runs: &AtomicUsize) -> Result<(), Box<dyn Error>> {
    let ledger = Connection::open(file)?;
    let (rows, messages, sum): (u32, u32, u32) = ledger.query_row(
        "SELECT count(*), count(DISTINCT message), sum(amount) FROM ledger",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    println!(
        "   {} runs wrote {rows} rows for {messages} messages; they add up to {sum}\n",
        runs.load(Ordering::SeqCst)
    );
    assert_eq!(
        (rows, messages, sum),
        (PAYMENTS, PAYMENTS, PAYMENTS * (PAYMENTS + 1) / 2)
    );
    assert!(runs.load(Ordering::SeqCst) >= 2 * usize::try_from(PAYMENTS)?);
    ledger.execute("DELETE FROM ledger", [])?;
    Ok(())
}
