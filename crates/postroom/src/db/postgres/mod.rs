//! PostgreSQL through tokio-postgres and a small pool.
//!
//! Every operation is one statement, so it needs no BEGIN and takes one round trip; a future that is
//! dropped half way leaves a statement that the server finishes or rolls back by itself. Only schema
//! deployment opens a transaction, on a connection of its own.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Connect, Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod,
};
use tokio_postgres::Config;
use tokio_postgres::types::Type;
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use crate::db::pool::{no_connection, small_pool};
use crate::db::{BoxFuture, Budget, Database, Output, TlsSettings, Transaction, Wakes, budget};
use crate::error::{Error, ErrorKind};
use crate::migrate::Plan;
use crate::options::Options;
use crate::sql::{Call, Dialect, Queue, Row, Script, Value};

mod connect;
mod deploy;
mod errors;
mod tls;
mod transaction;
mod values;
mod wake;

use connect::Connector;
pub(crate) use errors::database_error;
use errors::is_deadlock;
use transaction::PostgresTransaction;
use values::type_of;
pub(crate) use values::{int, is_array, row_place};
use wake::Announcer;

/// How often a transaction that a deadlock undid is tried again.
const DEADLOCK_RETRIES: u32 = 5;

pub(crate) struct Postgres {
    shared: Arc<Shared>,
    place: Place,
    outbox: Arc<Announcer>,
    inbox: Arc<Announcer>,
}

/// Where the server is and how it is reached, for more connections.
#[derive(Clone)]
struct Place {
    config: Config,
    tls: MakeRustlsConnect,
    budget: Option<Arc<Budget>>,
}

/// What tasks of our own use too.
struct Shared {
    pool: Arc<Pool>,
    prepare: bool,
}

impl Postgres {
    /// Opens a pool. No connection is made until one is needed.
    pub(crate) fn open(options: &Options) -> Result<Self, Error> {
        let place = Place::of(&options.url, options.budget.clone())?;
        Self::at(place, options.connections, options.prepared_statements)
    }

    fn at(place: Place, connections: usize, prepare: bool) -> Result<Self, Error> {
        let pool = place.pool(connections, prepare)?;
        Ok(Self {
            shared: Arc::new(Shared { pool, prepare }),
            place,
            outbox: Arc::default(),
            inbox: Arc::default(),
        })
    }
}

/// A connection of the caller's own, made as ours are.
pub(crate) async fn client(url: &str) -> Result<tokio_postgres::Client, Error> {
    let place = Place::of(url, None)?;
    let connector = place.connector();
    let connected = connector.connect(&place.config).await;
    let (client, _driving) = connected.map_err(|error| database_error(&error))?;
    Ok(client)
}

impl Place {
    fn of(url: &str, budget: Option<Arc<Budget>>) -> Result<Self, Error> {
        let (tls, mut config) = parse(url)?;
        let tls = tls::apply(&tls, &mut config)?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(10));
        }
        if config.get_application_name().is_none() {
            config.application_name("postroom");
        }
        // A peer that has vanished must not hold a call for hours.
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(30));
        }
        config.keepalives_idle(config.get_keepalives_idle().min(Duration::from_secs(30)));
        Ok(Self {
            config,
            tls,
            budget,
        })
    }

    fn connector(&self) -> Connector {
        Connector {
            tls: self.tls.clone(),
            budget: self.budget.clone(),
        }
    }

    fn pool(&self, connections: usize, prepare: bool) -> Result<Arc<Pool>, Error> {
        let manager = Manager::from_connect(
            self.config.clone(),
            self.connector(),
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        let mut pool = Pool::builder(manager);
        if prepare {
            // The functions look again after they have locked; under another level they would not see
            // more than before, and refuse. Behind a pooler a setting of the session does not hold.
            pool = pool.post_create(Hook::async_fn(|client, _| {
                Box::pin(async move {
                    let settings = "SET default_transaction_isolation = 'read committed'";
                    client
                        .batch_execute(settings)
                        .await
                        .map_err(HookError::Backend)
                })
            }));
        }
        small_pool(pool, connections, self.budget.as_ref())
    }
}

impl Shared {
    async fn connection(&self) -> Result<Object, Error> {
        let object = self.pool.get().await;
        object.map_err(|error| no_connection(error, database_error))
    }

    /// Runs one statement and collects its rows. After a deadlock or serialization failure nothing
    /// happened, so it is safe to try again.
    async fn statement(&self, call: &Call) -> Result<Output, Error> {
        let mut tries = 0;
        loop {
            let connection = self.connection().await?;
            match query(
                &connection,
                self.prepare,
                &call.script.parts[0].sql,
                &call.values,
            )
            .await
            {
                Ok(output) => return Ok(output),
                Err(error) if is_deadlock(&error) && tries < DEADLOCK_RETRIES => {
                    tries += 1;
                    tracing::debug!(tries, "deadlock, trying again");
                }
                Err(error) => return Err(database_error(&error)),
            }
        }
    }
}

impl Database for Postgres {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn run(&self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move {
            // Two statements would need a transaction around them: none is ever split here.
            let [call] = calls.as_slice() else {
                return Err(ErrorKind::Database.with("an operation is one statement on PostgreSQL"));
            };
            self.shared.statement(call).await
        })
    }

    fn read(&self, call: Call) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move { self.shared.statement(&call).await })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>, Error>> {
        Box::pin(async move {
            let place = budget::transaction(self.place.budget.as_ref()).await;
            let connection = self.shared.connection().await?;
            let transaction =
                PostgresTransaction::begin(connection, place, self.shared.prepare).await?;
            Ok(Box::new(transaction) as Box<dyn Transaction>)
        })
    }

    fn apart(&self, connections: usize) -> Result<Box<dyn Database>, Error> {
        let apart = Self::at(self.place.clone(), connections, self.shared.prepare)?;
        Ok(Box::new(apart))
    }

    fn announce(
        &self,
        queue: Queue,
        channel: &str,
        script: Option<&Arc<Script>>,
        promised: Option<Uuid>,
    ) {
        let Some(script) = script else {
            return;
        };
        let announcer = match queue {
            Queue::Outbox => &self.outbox,
            Queue::Inbox => &self.inbox,
        };
        announcer.announce(&self.shared, promised, || {
            let (script, channel) = (Arc::clone(script), channel.to_owned());
            move |rows: &[Uuid]| {
                script.call(vec![channel.as_str().into(), Value::Uuids(rows.to_vec())])
            }
        });
    }

    fn listen(&self, wakes: Wakes) -> Option<BoxFuture<'static, ()>> {
        // Behind a pooler that gives out a connection per transaction nobody can listen.
        let place = self.place.clone();
        let listening = wake::listen(place.config, place.tls, wakes);
        self.shared
            .prepare
            .then(|| Box::pin(listening) as BoxFuture<'static, ()>)
    }

    fn prepare(&self, scripts: Vec<Arc<Script>>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let mut connection = self.shared.connection().await?;
            // In one transaction, so that a pooler keeps to one server.
            let transaction = connection
                .transaction()
                .await
                .map_err(|error| database_error(&error))?;
            for part in scripts.iter().flat_map(|script| &script.parts) {
                transaction
                    .prepare(&part.sql)
                    .await
                    .map_err(|error| database_error(&error))?;
            }
            transaction
                .rollback()
                .await
                .map_err(|error| database_error(&error))
        })
    }

    fn deploy(&self, plan: Plan) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let connection = self.shared.connection().await?;
            // To its end, whatever becomes of the caller: a connection never returns to the pool with
            // an open transaction.
            tokio::spawn(async move { deploy::deploy(connection, &plan).await })
                .await
                .map_err(|_| ErrorKind::Transient.with("the deployment was stopped"))?
        })
    }

    fn applied(&self, plan: Plan) -> BoxFuture<'_, Result<Option<Vec<(i64, String)>>, Error>> {
        Box::pin(async move {
            let connection = self.shared.connection().await?;
            deploy::applied(&connection, &plan).await
        })
    }
}

fn parse(url: &str) -> Result<(TlsSettings, Config), Error> {
    let (tls, url) = TlsSettings::split(url);
    let config = Config::from_str(&url).map_err(|_| {
        ErrorKind::InvalidArgument { param: "url" }.with("not a valid postgres connection string")
    })?;
    tls::mode(&tls, &config)?;
    Ok((tls, config))
}

/// Where a URL leads, without secrets.
pub(crate) fn place_of(url: &str) -> Result<String, Error> {
    Ok(place(&parse(url)?.1))
}

/// Host, port and database, as in a URL.
fn place(config: &Config) -> String {
    use tokio_postgres::config::Host;
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(index, host)| {
            let port = config
                .get_ports()
                .get(index)
                .or(config.get_ports().first())
                .copied()
                .unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        })
        .collect();
    format!(
        "postgres://{}/{}",
        hosts.join(","),
        config
            .get_dbname()
            .or(config.get_user())
            .unwrap_or_default()
    )
}

async fn query(
    connection: &Object,
    prepare: bool,
    sql: &str,
    values: &[Value],
) -> Result<Output, tokio_postgres::Error> {
    use futures_util::TryStreamExt;
    let stream = if prepare {
        let statement = connection.prepare_cached(sql).await?;
        connection.query_raw(&statement, values).await?
    } else {
        let typed: Vec<(&Value, Type)> =
            values.iter().map(|value| (value, type_of(value))).collect();
        connection.query_typed_raw(sql, typed).await?
    };
    let mut stream = std::pin::pin!(stream);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(Row::of_postgres(row));
    }
    Ok(Output {
        ends: vec![rows.len()],
        rows,
        changed: vec![stream.rows_affected().unwrap_or(0)],
    })
}
