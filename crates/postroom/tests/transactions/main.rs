//! Somebody else's transaction: the same tests for every client library that postroom can join.

#![allow(clippy::unwrap_used, reason = "tests")]

mod clients;
mod shop;

use clients::Client;
use postroom::{
    Accepted, Arrival, Delivery, ErrorKind, HandlerError, InboxMessageId, InboxState, JoinStatus,
    Message, Options, Outcome, Postroom, Queue, Report, State,
};
use shop::{
    Ack, AckDelivery, Claimed, InvalidMessage, LargeMessage, PlaceOrder, Shop, UnknownJoin,
    WrongDatabase,
};
use testkit::mysql::Server;
use testkit::server::Durability;
use testkit::{Backend, Fixture};

/// How a test ends its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Commit,
    Rollback,
}

/// Shows OBX-002, OBX-003, HDT-21, IBX-013, IBX-014.
async fn commit_keeps_order_and_message<C: Client>() {
    let shop = Shop::open(C::BACKEND).await;
    let order = C::transaction(&shop, PlaceOrder, End::Commit)
        .await
        .unwrap();

    let room = &shop.fixture.room;
    let mut messages = Vec::new();
    for receipt in &order.receipts {
        let message = room
            .outbox()
            .get(receipt.work_item_id)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(message.message_id, receipt.message_id);
        messages.push(message);
    }
    let content: Vec<_> = messages
        .iter()
        .map(|message| (message.topic.as_str(), message.payload.as_str()))
        .collect();
    assert_eq!(
        content,
        [
            ("order.created", r#"{"customer":"Zoë"}"#),
            ("mail.send", ""),
            ("stock.reserve", r#"{"sku":"a\"b\\, {NULL}"}"#),
            ("order.ship", "7")
        ]
    );
    let correlations: Vec<_> = messages
        .iter()
        .map(|message| message.correlation_id.as_deref())
        .collect();
    assert_eq!(
        correlations,
        [Some("request-1"), None, Some("request-1"), None]
    );
    let tenants: Vec<_> = messages
        .iter()
        .map(|message| message.headers.get("tenant").map(String::as_str))
        .collect();
    assert_eq!(tenants, [Some("7"), None, Some("7"), None]);
    let due_times: Vec<_> = messages.iter().map(|message| message.due_time).collect();
    assert_eq!(due_times, [None, None, Some(shop::due_at()), None]);

    let join = room.joins().get(order.join).await.unwrap().unwrap();
    assert_eq!((join.status, join.expected_steps), (JoinStatus::Pending, 1));
    assert_eq!(
        (join.grouping_key.as_deref(), join.metadata.as_deref()),
        (Some("order-7"), None)
    );
    let members = room.joins().members(order.join, None, 10).await.unwrap();
    assert_eq!(
        members
            .iter()
            .map(|member| member.message_id)
            .collect::<Vec<_>>(),
        [order.step.message_id]
    );
    assert!(
        room.outbox()
            .get(order.wait.work_item_id)
            .await
            .unwrap()
            .is_some()
    );

    let written = shop.written().await;
    assert_eq!(
        written,
        [
            ("orders", 1),
            ("outbox", 5),
            ("inbox", 1),
            ("inbox_seen", 1),
            ("outbox_join", 1),
            ("outbox_join_member", 1),
            ("outbox_join_wait", 1)
        ]
    );
}

/// Shows IBX-013, IBX-014.
async fn inbox_outcomes_are_told_before_the_commit<C: Client>() {
    let shop = Shop::open(C::BACKEND).await;
    let order = C::transaction(&shop, PlaceOrder, End::Commit)
        .await
        .unwrap();

    let accepted = |arrival, hash_differs| Accepted {
        arrival,
        hash_differs,
    };
    assert_eq!(
        order.arrivals,
        [
            accepted(Arrival::New, false),
            accepted(Arrival::Replaced, false),
            accepted(Arrival::Replaced, true),
            accepted(Arrival::AlreadyDone, false),
            accepted(Arrival::Dead, false),
            accepted(Arrival::Dead, true),
        ]
    );
    let message = shop
        .fixture
        .room
        .inbox()
        .get(&InboxMessageId::new("bank", "payment-1"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(message.payload.as_deref(), Some("300"));
}

/// Shows OBX-003, HDT-21.
async fn rollback_leaves_neither<C: Client>() {
    let shop = Shop::open(C::BACKEND).await;
    let order = C::transaction(&shop, PlaceOrder, End::Rollback)
        .await
        .unwrap();

    assert_eq!(shop.written().await, []);
    let room = &shop.fixture.room;
    assert_eq!(
        room.outbox()
            .get(order.receipts[0].work_item_id)
            .await
            .unwrap(),
        None
    );
    assert_eq!(room.joins().get(order.join).await.unwrap(), None);
}

/// Shows OBX-003, OBX-004.
async fn invalid_message_is_refused_by_name_and_writes_nothing<C: Client>() {
    let shop = Shop::open(C::BACKEND).await;
    let error = C::transaction(&shop, InvalidMessage, End::Commit)
        .await
        .unwrap_err();

    assert_eq!(
        C::ours(&error).unwrap().kind(),
        ErrorKind::InvalidArgument { param: "topic" }
    );
    assert_eq!(shop.written().await, [("orders", 1)]);
}

/// The caller's connection stays as good as it was. A server that is told to take more is asked again.
async fn a_payload_beyond_the_packets_of_mysql_is_refused_by_name<C: Client>() {
    const LIMIT: usize = 2 * 1024 * 1024;
    let start = || Server::start_with(Durability::Off, &["--max-allowed-packet=2M"]);
    let server = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
    let room = Options::new(server.url()).deploy(true).connect().await;
    let fixture = Fixture::at(Backend::MySql, room.unwrap(), server.url(), None);
    let shop = Shop::at(fixture).await;
    let error = C::transaction(&shop, LargeMessage(LIMIT), End::Commit)
        .await
        .unwrap_err();
    assert_eq!(
        C::ours(&error).map(postroom::Error::kind),
        Some(ErrorKind::InvalidArgument { param: "payload" }),
        "{error}"
    );
    assert_eq!(shop.written().await, [("orders", 1)]);

    let fixture = &shop.fixture;
    fixture.sql("DELETE FROM {orders}").await;
    fixture
        .sql("SET GLOBAL max_allowed_packet = 16777216")
        .await;
    C::transaction(&shop, LargeMessage(LIMIT), End::Commit)
        .await
        .unwrap();
    assert_eq!(shop.written().await, [("orders", 1), ("outbox", 2)]);
}

/// Shows OBX-003. Even if the caller commits after the error, no part of the message is there.
async fn unknown_join_is_refused<C: Client>() {
    let shop = Shop::open(C::BACKEND).await;
    // On PostgreSQL and MySQL a foreign key refuses, which most clients report in their own way. On
    // PostgreSQL the transaction cannot be committed any more.
    let (end, kept): (End, &[(&str, i64)]) = match C::BACKEND {
        Backend::Sqlite | Backend::MySql => (End::Commit, &[("orders", 1)]),
        Backend::Postgres => (End::Rollback, &[]),
        Backend::SqlServer => (End::Rollback, &[]),
    };
    let error = C::transaction(&shop, UnknownJoin, end).await.unwrap_err();

    if C::BACKEND == Backend::Sqlite || C::ours(&error).is_some() {
        assert_eq!(
            C::ours(&error).unwrap().kind(),
            ErrorKind::NotFound { what: "join" }
        );
    }
    assert_eq!(shop.written().await, kept);
}

async fn transaction_of_another_database_is_refused<C: Client>() {
    let shop = Shop::open(C::BACKEND).await;
    let other = match C::BACKEND {
        Backend::Sqlite => Fixture::new(Backend::Postgres).await,
        Backend::Postgres | Backend::MySql | Backend::SqlServer => {
            Fixture::new(Backend::Sqlite).await
        }
    };
    let error = C::transaction(&shop, WrongDatabase(other.room.clone()), End::Commit)
        .await
        .unwrap_err();

    assert_eq!(
        C::ours(&error).unwrap().kind(),
        ErrorKind::InvalidArgument { param: "tx" }
    );
    assert_eq!(shop.written().await, [("orders", 1)]);
    assert_eq!(other.number("SELECT count(*) FROM {outbox}").await, 0);
}

const BOTH: &[Queue] = &[Queue::Outbox, Queue::Inbox];

/// What has become of the two messages.
async fn states(shop: &Shop, claimed: Claimed) -> (State, InboxState) {
    let room = &shop.fixture.room;
    let step = room.outbox().get(claimed.outbox).await.unwrap().unwrap();
    let payment = InboxMessageId::new("bank", "payment-7");
    let payment = room.inbox().get(&payment).await.unwrap().unwrap();
    (step.state, payment.state)
}

async fn an_ack_commits_with_the_order<C: Client>() {
    let mut shop = Shop::open(C::BACKEND).await;
    let join = shop.send_both().await;
    let claimed = shop.claim_both().await;
    C::transaction(&shop, Ack(claimed, BOTH), End::Commit)
        .await
        .unwrap();

    assert_eq!(
        states(&shop, claimed).await,
        (State::Done, InboxState::Done)
    );
    let room = &shop.fixture.room;
    let join = room.joins().get(join).await.unwrap().unwrap();
    assert_eq!(
        (join.status, join.completed_steps),
        (JoinStatus::Completed, 1)
    );
    assert!(shop.written().await.contains(&("orders", 1)));
}

async fn an_ack_rolls_back_with_the_order<C: Client>() {
    let mut shop = Shop::open(C::BACKEND).await;
    let join = shop.send_both().await;
    let claimed = shop.claim_both().await;
    C::transaction(&shop, Ack(claimed, BOTH), End::Rollback)
        .await
        .unwrap();

    assert_eq!(shop.written().await, []);
    let room = &shop.fixture.room;
    let join = room.joins().get(join).await.unwrap().unwrap();
    assert_eq!(
        (join.status, join.completed_steps),
        (JoinStatus::Pending, 0)
    );
    // Still its owner's, who may ack once more.
    C::transaction(&shop, Ack(claimed, BOTH), End::Commit)
        .await
        .unwrap();
    assert_eq!(
        states(&shop, claimed).await,
        (State::Done, InboxState::Done)
    );
}

/// Shows C-18.
async fn an_ack_after_the_lease_was_lost_is_refused_and_nothing_is_committed<C: Client>() {
    let mut shop = Shop::open(C::BACKEND).await;
    shop.send_both().await;
    let late = shop.claim_both().await;
    shop.fixture.expire_leases().await;
    let other = shop.claim_both().await;
    for queue in [&BOTH[..1], &BOTH[1..]] {
        let error = C::transaction(&shop, Ack(late, queue), End::Rollback)
            .await
            .unwrap_err();
        assert_eq!(
            C::ours(&error).map(postroom::Error::kind),
            Some(ErrorKind::LeaseLost),
            "{queue:?}: {error}"
        );
        assert_eq!(shop.written().await, []);
    }
    // The other owner has lost nothing by it.
    C::transaction(&shop, Ack(other, BOTH), End::Commit)
        .await
        .unwrap();
    assert_eq!(states(&shop, other).await, (State::Done, InboxState::Done));
}

/// Lets a dispatcher deliver the step, acks it in a transaction that ends so, and lets the handler
/// answer accordingly.
async fn ack_from_a_handler<C: Client>(shop: &Shop, end: End) -> Report {
    let (deliver, mut delivered) = tokio::sync::mpsc::channel::<Delivery>(1);
    let (go_on, told) = tokio::sync::watch::channel(false);
    let dispatcher = shop
        .fixture
        .room
        .dispatcher()
        .on("order.ship", move |delivery: Delivery| {
            let (deliver, mut told) = (deliver.clone(), told.clone());
            async move {
                deliver.send(delivery).await?;
                told.wait_for(|told| *told).await?;
                match end {
                    End::Commit => Ok(Outcome::Done),
                    End::Rollback => Err(HandlerError::business("rolled back")),
                }
            }
        });
    let handling = tokio::spawn(async move { dispatcher.drain().await });
    let delivery = delivered.recv().await.unwrap();
    C::transaction(shop, AckDelivery(delivery), end)
        .await
        .unwrap();
    go_on.send(true).unwrap();
    handling.await.unwrap().unwrap()
}

async fn a_handler_acks_in_a_transaction_of_its_own<C: Client>() {
    let mut shop = Shop::open(C::BACKEND).await;
    let join = shop.send_both().await;
    let rolled_back = ack_from_a_handler::<C>(&shop, End::Rollback).await;
    assert_eq!((rolled_back.done, rolled_back.retried), (0, 1));
    assert_eq!(shop.written().await, []);

    shop.fixture.skip_backoff().await;
    let committed = ack_from_a_handler::<C>(&shop, End::Commit).await;
    assert_eq!((committed.done, committed.lost), (1, 0));
    assert!(shop.written().await.contains(&("orders", 1)));
    let room = &shop.fixture.room;
    let join = room.joins().get(join).await.unwrap().unwrap();
    assert_eq!(join.status, JoinStatus::Completed);
}

macro_rules! mount {
    ($($module:ident: $client:ident $(and $own:ident)?),+ $(,)?) => {
        $(mod $module {
            mount!(@tests $client:
                commit_keeps_order_and_message,
                inbox_outcomes_are_told_before_the_commit,
                rollback_leaves_neither,
                invalid_message_is_refused_by_name_and_writes_nothing,
                unknown_join_is_refused,
                transaction_of_another_database_is_refused,
                an_ack_commits_with_the_order,
                an_ack_rolls_back_with_the_order,
                an_ack_after_the_lease_was_lost_is_refused_and_nothing_is_committed,
                a_handler_acks_in_a_transaction_of_its_own,
                $($own)?
            );
        })+
    };
    (@tests $client:ident: $($test:ident),+ $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            if super::is_here::<super::clients::$client>() {
                super::$test::<super::clients::$client>().await;
            }
        })+
    };
}

/// A SQL Server is only there when somebody names one.
fn is_here<C: Client>() -> bool {
    let here = C::BACKEND != Backend::SqlServer || testkit::sqlserver::url().is_some();
    if !here {
        eprintln!("NOT RUN: no SQL Server is named");
    }
    here
}

mount!(
    rusqlite: Rusqlite,
    tokio_postgres: TokioPostgres,
    deadpool_postgres: DeadpoolPostgres,
    sqlx_postgres: SqlxPostgres,
    sqlx_sqlite: SqlxSqlite,
    diesel_postgres: DieselPostgres,
    diesel_sqlite: DieselSqlite,
    diesel_async_postgres: DieselAsyncPostgres,
    sea_orm_postgres: SeaOrmPostgres,
    sea_orm_sqlite: SeaOrmSqlite,
    sea_orm_mysql: SeaOrmMySql and a_payload_beyond_the_packets_of_mysql_is_refused_by_name,
    mysql_async: MysqlAsync and a_payload_beyond_the_packets_of_mysql_is_refused_by_name,
    sqlx_mysql: SqlxMySql and a_payload_beyond_the_packets_of_mysql_is_refused_by_name,
    tiberius_sqlserver: Tiberius,
);

/// A web server's handler must be `Send`. This compiles only if such a handler can enqueue.
const _: fn(&Postroom, &Message, AsyncTransactions<'_>) = |room, message, transactions| {
    fn spawnable(_: impl Send) {}
    let outbox = room.outbox();
    spawnable(outbox.enqueue_in(transactions.tokio_postgres, message));
    spawnable(outbox.enqueue_in(transactions.deadpool_postgres, message));
    spawnable(outbox.enqueue_in(transactions.sqlx_postgres, message));
    spawnable(outbox.enqueue_in(transactions.sqlx_sqlite, message));
    spawnable(outbox.enqueue_in(transactions.diesel_async_postgres, message));
    spawnable(outbox.enqueue_in(transactions.sea_orm, message));
    spawnable(outbox.enqueue_in(transactions.mysql_async, message));
    spawnable(outbox.enqueue_in(transactions.sqlx_mysql, message));
    spawnable(outbox.enqueue_in(transactions.tiberius, message));
};

struct AsyncTransactions<'a> {
    tokio_postgres: &'a mut ::tokio_postgres::Transaction<'a>,
    deadpool_postgres: &'a mut ::deadpool_postgres::Transaction<'a>,
    sqlx_postgres: &'a mut sqlx::Transaction<'a, sqlx::Postgres>,
    sqlx_sqlite: &'a mut sqlx::Transaction<'a, sqlx::Sqlite>,
    diesel_async_postgres: &'a mut diesel_async::AsyncPgConnection,
    sea_orm: &'a mut sea_orm::DatabaseTransaction,
    mysql_async: &'a mut ::mysql_async::Transaction<'a>,
    sqlx_mysql: &'a mut sqlx::Transaction<'a, sqlx::MySql>,
    tiberius: &'a mut testkit::sqlserver::Client,
}
