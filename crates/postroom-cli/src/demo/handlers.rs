//! What the demo's shop does with its messages, and how it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use postroom::{
    Delivery, Dispatcher, Failure, FailureClass, Handler, HandlerError, Json, Outcome, OwnerToken,
    RetryPolicy, Tx, Verdict, done,
};
use serde::Deserialize;

/// The courier of one order in so many answers at the second call only.
const SLOW_COURIER: i64 = 7;

/// The street of this order does not exist, until an operator mends it.
pub(super) const NO_STREET: i64 = 2;

/// The label of this order crashes the printer, always: the demo's poison.
pub(super) const POISON: i64 = 4;

/// A stranger tries to ack this order's message.
const STRANGER: i64 = 3;

/// Books a parcel for each order, in the transaction of the ack.
#[derive(Clone, Default)]
pub(super) struct Parcels {
    pub(super) book: String,
    pub(super) is_mended: Arc<AtomicBool>,
    /// Acks by a stranger that had an effect.
    pub(super) stolen: Arc<AtomicUsize>,
}

/// Whether an order has to be tried twice.
pub(super) fn fails_once(order: i64) -> bool {
    order % SLOW_COURIER == 1
}

impl Handler for Parcels {
    async fn handle(&self, delivery: Delivery) -> Result<Outcome, HandlerError> {
        let order: i64 = delivery.correlation_id().unwrap_or_default().parse()?;
        if order == STRANGER {
            let stranger = OwnerToken::new();
            let ids = [delivery.work_item_id()];
            let acked = delivery.room().outbox().ack(stranger, &ids).await?;
            self.stolen.fetch_add(acked.len(), Ordering::SeqCst);
        }
        let mut transaction = delivery.transaction();
        transaction.execute(&self.book, vec![order.into()]).await?;
        match order {
            order if fails_once(order) && delivery.attempt() == 1 => {
                Err(HandlerError::business("the courier does not answer"))
            }
            NO_STREET if !self.is_mended.load(Ordering::SeqCst) => {
                Err(HandlerError::permanent("there is no such street"))
            }
            POISON => Err(HandlerError::business("the label crashed the printer")),
            _ => done(),
        }
    }
}

#[derive(Deserialize)]
struct Payment {
    order: i64,
}

/// Lets a dispatcher do the shop's work.
pub(super) fn install(
    dispatcher: Dispatcher,
    parcels: &Parcels,
    book_payment: String,
) -> Dispatcher {
    dispatcher
        .on("order.placed", parcels.clone())
        .on_inbound(
            "payment.received",
            move |payment: Json<Payment>, mut tx: Tx| {
                let book = book_payment.clone();
                async move {
                    tx.execute(&book, vec![payment.order.into()]).await?;
                    done()
                }
            },
        )
        .otherwise(|_: Delivery| async {})
        .retry(Impatient)
}

/// A demo cannot wait as long as a shop can: three attempts, and little time between them.
struct Impatient;

impl RetryPolicy for Impatient {
    fn decide(&self, failure: &Failure<'_>) -> Verdict {
        match failure.class {
            FailureClass::Permanent => Verdict::Fail(String::new()),
            _ if failure.attempts < 3 => Verdict::Retry(Some(Duration::from_millis(100))),
            _ => Verdict::Fail("Three attempts are enough for a demo".to_owned()),
        }
    }
}
