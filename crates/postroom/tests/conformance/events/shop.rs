//! Aggregates with events, a store with a business table beside it, and transactions of either database.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use mysql_async::prelude::Queryable;
use postroom::events::{Aggregate, DomainEvent, EventTypes, Events, UnitOfWork};
use postroom::tx::Executor;
use postroom::{Dialect, Error, MessageId, OutboxMessage, OwnerToken, Statement};
use serde::{Deserialize, Serialize};
use testkit::{Backend, Fixture, LEASE, micros};

/// What can happen to an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum OrderEvent {
    Placed { order: i64 },
    Noted { note: String },
}

impl DomainEvent for OrderEvent {
    fn event_type(&self) -> &'static str {
        match self {
            Self::Placed { .. } => "orders.placed",
            Self::Noted { .. } => "orders.noted",
        }
    }

    fn is_externalized(&self) -> bool {
        matches!(self, Self::Placed { .. })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Order {
    pub(crate) events: Events<OrderEvent>,
}

impl Order {
    pub(crate) fn placed(id: i64) -> Self {
        let mut order = Self::default();
        order.events.record(OrderEvent::Placed { order: id });
        order
    }

    pub(crate) fn ids(&self) -> Vec<MessageId> {
        self.events.iter().map(|recorded| recorded.id).collect()
    }
}

impl Aggregate for Order {
    type Event = OrderEvent;

    fn events(&mut self) -> &mut Events<OrderEvent> {
        &mut self.events
    }
}

/// An event that says everything about itself, right or wrong.
#[derive(Clone, Serialize)]
pub(crate) struct Custom {
    #[serde(skip)]
    pub(crate) event_type: &'static str,
    #[serde(skip)]
    pub(crate) topic: String,
    #[serde(skip)]
    pub(crate) id: Option<MessageId>,
    #[serde(skip)]
    pub(crate) occurred_at: Option<SystemTime>,
    pub(crate) amount: i64,
    /// JSON has no such keys: an entry makes the event impossible to write.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) by_pair: BTreeMap<(i64, i64), String>,
}

impl Custom {
    pub(crate) fn new() -> Self {
        Self {
            event_type: "stock.taken",
            topic: "warehouse".to_owned(),
            id: None,
            occurred_at: None,
            amount: 3,
            by_pair: BTreeMap::new(),
        }
    }
}

impl DomainEvent for Custom {
    fn event_type(&self) -> &'static str {
        self.event_type
    }

    fn topic(&self) -> &str {
        &self.topic
    }

    fn event_id(&self) -> Option<MessageId> {
        self.id
    }

    fn occurred_at(&self) -> Option<SystemTime> {
        self.occurred_at
    }
}

#[derive(Clone)]
pub(crate) struct Stock {
    pub(crate) events: Events<Custom>,
}

impl Stock {
    pub(crate) fn with(event: Custom) -> Self {
        let mut events = Events::new();
        events.record(event);
        Self { events }
    }
}

impl Aggregate for Stock {
    type Event = Custom;

    fn events(&mut self) -> &mut Events<Custom> {
        &mut self.events
    }
}

/// A store with a business table beside it, and a connection of the business's own.
pub(crate) struct Shop {
    pub(crate) fixture: Fixture,
    connection: Connection,
}

enum Connection {
    Sqlite(rusqlite::Connection),
    Postgres(tokio_postgres::Client),
    MySql(Box<mysql_async::Conn>),
    SqlServer(Box<testkit::sqlserver::Client>),
}

impl Shop {
    pub(crate) async fn open(fixture: Fixture) -> Self {
        fixture
            .sql("CREATE TABLE {orders} (id bigint PRIMARY KEY)")
            .await;
        let connection = match fixture.backend {
            Backend::Sqlite => Connection::Sqlite(fixture.sqlite()),
            Backend::Postgres => Connection::Postgres(fixture.postgres().await),
            Backend::MySql => Connection::MySql(Box::new(fixture.mysql().await)),
            Backend::SqlServer => Connection::SqlServer(Box::new(fixture.sqlserver().await)),
        };
        Self {
            fixture,
            connection,
        }
    }

    /// A transaction in which an order was written already.
    pub(crate) async fn transaction_with_order(&mut self, id: i64) -> Transaction<'_> {
        let insert = self
            .fixture
            .fill(&format!("INSERT INTO {{orders}} (id) VALUES ({id})"));
        let client = match &mut self.connection {
            Connection::Sqlite(connection) => {
                let transaction = connection.transaction().unwrap();
                transaction.execute_batch(&insert).unwrap();
                Client::Sqlite(transaction)
            }
            Connection::Postgres(client) => {
                let transaction = client.transaction().await.unwrap();
                transaction.batch_execute(&insert).await.unwrap();
                Client::Postgres(transaction)
            }
            Connection::MySql(connection) => {
                let mut transaction = testkit::mysql::begin(connection).await;
                transaction.query_drop(insert).await.unwrap();
                Client::MySql(transaction)
            }
            Connection::SqlServer(client) => {
                client.begin_transaction().await.unwrap();
                client.execute(insert, &[]).await.unwrap();
                Client::SqlServer(client)
            }
        };
        Transaction {
            client,
            statements: Vec::new(),
        }
    }

    /// Saves an order with the events of an aggregate, and commits.
    pub(crate) async fn save(&mut self, id: i64, aggregate: &mut impl Aggregate) {
        let room = self.fixture.room.clone();
        let mut transaction = self.transaction_with_order(id).await;
        let saved = UnitOfWork::new(&room)
            .collect(aggregate)
            .save_in(&mut transaction)
            .await
            .unwrap();
        transaction.commit().await;
        saved.committed();
    }

    pub(crate) async fn orders_and_messages(&self) -> (i64, i64) {
        (
            self.fixture.rows("orders").await,
            self.fixture.rows("outbox").await,
        )
    }

    pub(crate) async fn claim(&self) -> Vec<OutboxMessage> {
        let outbox = self.fixture.room.outbox();
        outbox.claim(OwnerToken::new(), LEASE, 100).await.unwrap()
    }
}

/// A transaction of any database, behind an executor that postroom does not know.
pub(crate) struct Transaction<'a> {
    client: Client<'a>,
    pub(crate) statements: Vec<String>,
}

enum Client<'a> {
    Sqlite(rusqlite::Transaction<'a>),
    Postgres(tokio_postgres::Transaction<'a>),
    MySql(mysql_async::Transaction<'a>),
    SqlServer(&'a mut testkit::sqlserver::Client),
}

#[derive(Debug)]
pub(crate) enum ShopError {
    Postroom(Error),
    Database,
}

impl From<Error> for ShopError {
    fn from(error: Error) -> Self {
        Self::Postroom(error)
    }
}

impl ShopError {
    pub(crate) fn param(&self) -> Option<&'static str> {
        match self {
            Self::Postroom(error) => error.param(),
            Self::Database => None,
        }
    }
}

impl Executor for Transaction<'_> {
    type Error = ShopError;

    fn dialect(&self) -> Dialect {
        match &self.client {
            Client::Sqlite(transaction) => transaction.dialect(),
            Client::Postgres(transaction) => transaction.dialect(),
            Client::MySql(transaction) => transaction.dialect(),
            Client::SqlServer(client) => Executor::dialect(&**client),
        }
    }

    async fn execute(&mut self, statement: Statement) -> Result<u64, ShopError> {
        self.statements.push(statement.sql.to_string());
        match &mut self.client {
            Client::Sqlite(transaction) => Executor::execute(transaction, statement).await.ok(),
            Client::Postgres(transaction) => Executor::execute(transaction, statement).await.ok(),
            Client::MySql(transaction) => Executor::execute(transaction, statement).await.ok(),
            Client::SqlServer(client) => Executor::execute(&mut **client, statement).await.ok(),
        }
        .ok_or(ShopError::Database)
    }
}

impl Transaction<'_> {
    pub(crate) async fn commit(self) {
        match self.client {
            Client::Sqlite(transaction) => transaction.commit().unwrap(),
            Client::Postgres(transaction) => transaction.commit().await.unwrap(),
            Client::MySql(transaction) => transaction.commit().await.unwrap(),
            Client::SqlServer(client) => client.commit_transaction().await.unwrap(),
        }
    }

    pub(crate) async fn rollback(self) {
        match self.client {
            Client::Sqlite(transaction) => transaction.rollback().unwrap(),
            Client::Postgres(transaction) => transaction.rollback().await.unwrap(),
            Client::MySql(transaction) => transaction.rollback().await.unwrap(),
            Client::SqlServer(client) => client.rollback_transaction().await.unwrap(),
        }
    }
}

pub(crate) fn order_types() -> EventTypes<OrderEvent> {
    EventTypes::new()
        .register("orders.placed", |event: OrderEvent| event)
        .unwrap()
}

/// A time as the database counts it.
pub(crate) fn since_1970(time: SystemTime) -> i64 {
    micros(time.duration_since(UNIX_EPOCH).unwrap())
}
