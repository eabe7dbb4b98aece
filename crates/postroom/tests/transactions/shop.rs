//! A store with a business table beside it, and what the tests do in a transaction.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postroom::tx::Executor;
use postroom::{
    Accepted, Inbound, InboxMessageId, JoinId, JoinWait, Message, NewJoin, Postroom, Receipt,
};
use testkit::{Backend, Fixture};

const TABLES: [&str; 7] = [
    "orders",
    "outbox",
    "inbox",
    "inbox_seen",
    "outbox_join",
    "outbox_join_member",
    "outbox_join_wait",
];

/// A fresh store that also takes orders, with one inbox message that is done and one that is dead.
pub(crate) struct Shop {
    pub(crate) fixture: Fixture,
    pub(crate) insert_order: String,
    rows_at_first: [i64; TABLES.len()],
}

impl Shop {
    pub(crate) async fn open(backend: Backend) -> Self {
        let fixture = Fixture::new(backend).await;
        fixture
            .sql("CREATE TABLE {orders} (id bigint PRIMARY KEY)")
            .await;
        let inbox = fixture.room.inbox();
        for message in ["payment-done", "payment-dead"] {
            inbox
                .enqueue(&Inbound::new("bank", message, "payment.received", "1").hash(*b"first"))
                .await
                .unwrap();
        }
        inbox
            .mark_processed(&InboxMessageId::new("bank", "payment-done"))
            .await
            .unwrap();
        inbox
            .mark_dead(&InboxMessageId::new("bank", "payment-dead"))
            .await
            .unwrap();
        let insert_order = format!("INSERT INTO {} (id) VALUES (7)", fixture.table("orders"));
        let rows_at_first = rows(&fixture).await;
        Self {
            fixture,
            insert_order,
            rows_at_first,
        }
    }

    /// The tables that have gained rows as others see them, and how many.
    pub(crate) async fn written(&self) -> Vec<(&'static str, i64)> {
        let rows = rows(&self.fixture).await;
        let gained = rows
            .iter()
            .zip(self.rows_at_first)
            .map(|(now, first)| now - first);
        TABLES
            .into_iter()
            .zip(gained)
            .filter(|(_, gained)| *gained != 0)
            .collect()
    }

    /// Nothing that a transaction has done may be seen before its end.
    pub(crate) async fn nothing_is_seen_yet(&self) {
        assert_eq!(self.written().await, []);
    }
}

async fn rows(fixture: &Fixture) -> [i64; TABLES.len()] {
    let mut rows = [0; TABLES.len()];
    for (count, table) in rows.iter_mut().zip(TABLES) {
        *count = fixture
            .number(&format!("SELECT count(*) FROM {{{table}}}"))
            .await;
    }
    rows
}

/// What a test does in a transaction, whichever client it belongs to.
pub(crate) trait Work {
    type Done;

    async fn run<E: Executor>(self, room: &Postroom, tx: &mut E) -> Result<Self::Done, E::Error>;
}

/// Every operation that takes a transaction.
pub(crate) struct PlaceOrder;

/// What has come of it.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) receipts: Vec<Receipt>,
    pub(crate) join: JoinId,
    pub(crate) step: Receipt,
    pub(crate) wait: Receipt,
    pub(crate) arrivals: Vec<Accepted>,
}

impl Work for PlaceOrder {
    type Done = Order;

    async fn run<E: Executor>(self, room: &Postroom, tx: &mut E) -> Result<Order, E::Error> {
        let (outbox, joins) = (room.outbox(), room.joins());
        let join = joins
            .start_in(tx, &NewJoin::new(1).grouping_key("order-7"))
            .await?;
        let messages = [
            Message::new("order.created", r#"{"customer":"Zoë"}"#)
                .correlation("request-1")
                .header("tenant", "7"),
            Message::new("mail.send", ""),
            Message::new("stock.reserve", r#"{"sku":"a\"b\\, {NULL}"}"#)
                .correlation("request-1")
                .header("tenant", "7")
                .due_at(due_at()),
            Message::new("order.ship", "7").join(join),
        ];
        let mut receipts = vec![outbox.enqueue_in(tx, &messages[0]).await?];
        receipts.extend(outbox.enqueue_many_in(tx, &messages[1..3]).await?);
        receipts.extend(outbox.enqueue_many_in(tx, &messages[3..]).await?);
        let wait = joins
            .enqueue_wait_in(tx, &JoinWait::new(join, "order.shipped", "7"))
            .await?;
        let mut arrivals = Vec::new();
        for (message, payload, hash) in [
            ("payment-1", "100", b"first"),
            ("payment-1", "200", b"first"),
            ("payment-1", "300", b"other"),
            ("payment-done", "100", b"first"),
            ("payment-dead", "100", b"first"),
            ("payment-dead", "200", b"other"),
        ] {
            let inbound = Inbound::new("bank", message, "payment.received", payload).hash(*hash);
            arrivals.push(room.inbox().enqueue_in(tx, &inbound).await?);
        }
        Ok(Order {
            step: receipts[3],
            receipts,
            join,
            wait,
            arrivals,
        })
    }
}

/// A time in the far future, exact to the microsecond.
pub(crate) fn due_at() -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(4_102_444_800_123_456)
}

/// A batch whose last message has no topic.
pub(crate) struct InvalidMessage;

impl Work for InvalidMessage {
    type Done = Vec<Receipt>;

    async fn run<E: Executor>(self, room: &Postroom, tx: &mut E) -> Result<Vec<Receipt>, E::Error> {
        room.outbox()
            .enqueue_many_in(
                tx,
                &[Message::new("order.created", "7"), Message::new("", "7")],
            )
            .await
    }
}

/// A step of a join that nobody has started.
pub(crate) struct UnknownJoin;

impl Work for UnknownJoin {
    type Done = Receipt;

    async fn run<E: Executor>(self, room: &Postroom, tx: &mut E) -> Result<Receipt, E::Error> {
        room.outbox()
            .enqueue_in(tx, &Message::new("order.ship", "7").join(JoinId::new()))
            .await
    }
}

/// A message for a store on the other kind of database.
pub(crate) struct WrongDatabase(pub(crate) Postroom);

impl Work for WrongDatabase {
    type Done = Receipt;

    async fn run<E: Executor>(self, _: &Postroom, tx: &mut E) -> Result<Receipt, E::Error> {
        self.0
            .outbox()
            .enqueue_in(tx, &Message::new("order.created", "7"))
            .await
    }
}
