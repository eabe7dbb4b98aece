//! A store with a business table beside it, and what the tests do in a transaction.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postroom::tx::Executor;
use postroom::{
    Accepted, Delivery, Inbound, InboxMessageId, JoinId, JoinWait, Message, NewJoin, OwnerToken,
    Postroom, Queue, Receipt, WorkItemId,
};
use testkit::{Backend, Fixture, LEASE};

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
        Self::at(Fixture::new(backend).await).await
    }

    pub(crate) async fn at(fixture: Fixture) -> Self {
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

    /// Sends a step of a join to the outbox and a payment to the inbox. What has been written so far
    /// counts from here.
    pub(crate) async fn send_both(&mut self) -> JoinId {
        let room = &self.fixture.room;
        let join = room.joins().start(&NewJoin::new(1)).await.unwrap();
        let step = Message::new("order.ship", "7").join(join);
        room.outbox().enqueue(&step).await.unwrap();
        let payment = Inbound::new("bank", "payment-7", "payment.received", "7");
        room.inbox().enqueue(&payment).await.unwrap();
        self.rows_at_first = rows(&self.fixture).await;
        join
    }

    /// Claims the one message that is ready in each queue.
    pub(crate) async fn claim_both(&self) -> Claimed {
        let (owner, room) = (OwnerToken::new(), &self.fixture.room);
        let outbox = room.outbox().claim(owner, LEASE, 10).await.unwrap();
        let inbox = room.inbox().claim(owner, LEASE, 10).await.unwrap();
        assert_eq!((outbox.len(), inbox.len()), (1, 1));
        Claimed {
            owner,
            outbox: outbox[0].id,
            inbox: inbox[0].work_item_id.unwrap(),
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

/// A batch whose last message has a payload of so many bytes.
pub(crate) struct LargeMessage(pub(crate) usize);

impl Work for LargeMessage {
    type Done = Vec<Receipt>;

    async fn run<E: Executor>(self, room: &Postroom, tx: &mut E) -> Result<Vec<Receipt>, E::Error> {
        let large = Message::new("order.created", "x".repeat(self.0));
        room.outbox()
            .enqueue_many_in(tx, &[Message::new("order.created", "7"), large])
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

/// A message of each queue, and who has claimed them.
#[derive(Clone, Copy)]
pub(crate) struct Claimed {
    pub(crate) owner: OwnerToken,
    pub(crate) outbox: WorkItemId,
    pub(crate) inbox: WorkItemId,
}

/// The acks of what was claimed from these queues.
pub(crate) struct Ack(pub(crate) Claimed, pub(crate) &'static [Queue]);

impl Work for Ack {
    type Done = ();

    async fn run<E: Executor>(self, room: &Postroom, tx: &mut E) -> Result<(), E::Error> {
        let Self(claimed, queues) = self;
        for queue in queues {
            match queue {
                Queue::Outbox => {
                    let outbox = room.outbox();
                    outbox.ack_in(tx, claimed.owner, claimed.outbox).await?;
                }
                Queue::Inbox => {
                    let inbox = room.inbox();
                    inbox.ack_in(tx, claimed.owner, claimed.inbox).await?;
                }
            }
        }
        Ok(())
    }
}

/// The ack of what a handler was given.
pub(crate) struct AckDelivery(pub(crate) Delivery);

impl Work for AckDelivery {
    type Done = ();

    async fn run<E: Executor>(self, _: &Postroom, tx: &mut E) -> Result<(), E::Error> {
        self.0.ack_in(tx).await
    }
}
