//! MySQL and MariaDB through mysql_async and a small pool.
//!
//! The protocol answers one command at a time, so an operation of several statements goes to the server as
//! one text, from START TRANSACTION to COMMIT: one round trip (`packet.rs`). What is one statement is
//! prepared. A future that is dropped half way takes its connection with it: the server finishes what it
//! has received, or rolls it back.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::Pool;
use mysql_async::{Conn, Opts, OptsBuilder};
use uuid::Uuid;

use crate::db::pool::{no_connection, small_pool};
use crate::db::{BoxFuture, Budget, Database, Output, TlsSettings, Transaction, budget};
use crate::error::{Error, ErrorKind};
use crate::migrate::Plan;
use crate::options::Options;
use crate::sql::{Call, Dialect, Script};

mod connect;
mod deploy;
mod errors;
mod packet;
mod peer;
mod tls;
mod transaction;
mod values;

use connect::{Connection, Connector, Largest};
pub(crate) use errors::database_error;
use errors::{Failure, cannot_connect, too_large};
use transaction::MySqlTransaction;
pub(crate) use values::encoded;

/// How often a transaction is tried again that a deadlock undid, or that waited too long for a lock.
/// With their pauses that is some seconds: MySQL finds deadlocks where calls settle the same messages in another
/// order.
const RETRIES: u32 = 8;

/// How long a statement waits for a lock, in seconds.
const LOCK_WAIT: u32 = 10;

/// How long a statement waits for a table that somebody is altering, or that is to be altered while somebody
/// uses it, in seconds. The server's own default is a day or a year.
const TABLE_WAIT: u32 = 60;

/// The largest row that the protocol knows.
const LARGEST_ROW: usize = 1 << 30;

pub(crate) struct MySql {
    pool: Arc<Pool<Connector>>,
    place: Place,
    prepare: bool,
}

/// Where the server is and how it is reached, for more connections.
#[derive(Clone)]
struct Place {
    opts: Opts,
    budget: Option<Arc<Budget>>,
    largest: Arc<Largest>,
}

impl MySql {
    /// Opens a pool. No connection is made until one is needed.
    pub(crate) fn open(options: &Options) -> Result<Self, Error> {
        let opts = way_to(&options.url)?
            .stmt_cache_size(256)
            // What the server takes at once is asked when a connection is made, and heeded before anything is
            // sent. What comes back may be larger: a row is more than the payload in it.
            .max_allowed_packet(Some(LARGEST_ROW))
            // The client would ask for it, but has no use for it without its own pool.
            .wait_timeout(Some(28_800))
            // An update that changes nothing has found its row all the same.
            .client_found_rows(true)
            .setup(vec![session()]);
        let place = Place {
            opts: opts.into(),
            budget: options.budget.clone(),
            largest: Arc::default(),
        };
        Self::at(place, options.connections, options.prepared_statements)
    }

    fn at(place: Place, connections: usize, prepare: bool) -> Result<Self, Error> {
        let connector = Connector {
            opts: place.opts.clone(),
            budget: place.budget.clone(),
            largest: Arc::clone(&place.largest),
        };
        Ok(Self {
            pool: small_pool(Pool::builder(connector), connections, place.budget.as_ref())?,
            place,
            prepare,
        })
    }

    async fn connection(&self) -> Result<Connection, Error> {
        let object = self.pool.get().await;
        let object = object.map_err(|error| no_connection(error, cannot_connect))?;
        Ok(Connection::new(object))
    }

    /// Runs work on a connection. After a deadlock nothing has happened, and after a wait for a lock that
    /// was too long nothing is left once it is rolled back: so it is safe to try again.
    async fn on_connection<T, F: Future<Output = (Connection, Result<T, Failure>)>>(
        &self,
        work: impl Fn(Connection) -> F,
    ) -> Result<T, Error> {
        let mut tries = 0;
        loop {
            let (mut connection, result) = work(self.connection().await?).await;
            let failure = match result {
                Ok(value) => {
                    connection.give_back();
                    return Ok(value);
                }
                Err(failure) => failure,
            };
            if failure.is_fatal() {
                // Its neighbours are most likely gone too: nobody should find that out one by one.
                self.pool.retain(|_, _| false);
                return Err(failure.into_error());
            }
            if connection.control("ROLLBACK").await.is_ok() {
                connection.give_back();
            }
            if !failure.is_lock_conflict() || tries == RETRIES {
                return Err(failure.into_error());
            }
            tries += 1;
            tracing::debug!(tries, "deadlock, trying again");
            tokio::time::sleep(pause(tries)).await;
        }
    }

    /// How many bytes the server takes at once from whoever connects now.
    async fn largest_packet(&self) -> Result<usize, Error> {
        let sql = include_str!("../../sql/mysql/largest_packet.sql");
        let mut rows = self
            .on_connection(|mut connection| async move {
                let rows = connection.rows(sql).await;
                (connection, rows.map_err(Failure::from))
            })
            .await?;
        rows.pop()
            .ok_or_else(|| ErrorKind::Database.with("the server did not tell its limit"))
    }

    async fn execute(&self, calls: &[Call]) -> Result<Output, Error> {
        self.on_connection(|mut connection| async move {
            let result = match calls {
                [only] if self.prepare && only.script.parts.len() == 1 => {
                    packet::prepared(&mut connection, only).await
                }
                calls => packet::transaction(&mut connection, calls).await,
            };
            (connection, result)
        })
        .await
    }
}

impl Database for MySql {
    fn dialect(&self) -> Dialect {
        Dialect::MySql
    }

    fn run(&self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move { self.execute(&calls).await })
    }

    fn read(&self, call: Call) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move { self.execute(&[call]).await })
    }

    fn admit(&self, bytes: usize) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let largest = &self.place.largest;
            if bytes <= largest.text() {
                return Ok(());
            }
            // Whoever connects now may be allowed more than we were. If nobody can be asked, the caller will see.
            let Ok(packet) = self.largest_packet().await else {
                return Ok(());
            };
            largest.said(packet);
            if bytes <= largest.text() {
                return Ok(());
            }
            Err(too_large())
        })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>, Error>> {
        Box::pin(async move {
            let place = budget::transaction(self.place.budget.as_ref()).await;
            let connection = self.connection().await?;
            let transaction = MySqlTransaction::begin(connection, place).await?;
            Ok(Box::new(transaction) as Box<dyn Transaction>)
        })
    }

    fn apart(&self, connections: usize) -> Result<Box<dyn Database>, Error> {
        let apart = Self::at(self.place.clone(), connections, self.prepare)?;
        Ok(Box::new(apart))
    }

    fn prepare(&self, scripts: Vec<Arc<Script>>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            // All of them by one text, each in the place of the one before.
            let mut text = String::new();
            for part in scripts.iter().flat_map(|script| &script.parts) {
                text.push_str("PREPARE postroom FROM ");
                values::quoted(&mut text, &part.sql);
                text.push_str(";\n");
            }
            text.push_str("DEALLOCATE PREPARE postroom");
            self.on_connection(|mut connection| {
                let text = &text;
                async move {
                    let result = connection.control(text).await;
                    (connection, result.map_err(Failure::from))
                }
            })
            .await
        })
    }

    fn deploy(&self, plan: Plan) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let connection = self.connection().await?;
            // To its end, whatever becomes of the caller: every statement that makes a table commits.
            tokio::spawn(deploy::deploy(connection, plan))
                .await
                .map_err(|_| ErrorKind::Transient.with("the deployment was stopped"))?
        })
    }

    fn applied(&self, plan: Plan) -> BoxFuture<'_, Result<Option<Vec<(i64, String)>>, Error>> {
        Box::pin(async move {
            let mut connection = self.connection().await?;
            let applied = deploy::applied(&mut connection, &plan).await?;
            connection.give_back();
            Ok(applied)
        })
    }
}

/// What a connection of ours counts on, whatever the server's defaults are.
fn session() -> String {
    format!(
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin; \
         SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', \
         group_concat_max_len = 67108864, innodb_lock_wait_timeout = {LOCK_WAIT}, \
         lock_wait_timeout = {TABLE_WAIT}"
    )
}

/// Twice as long each time, and never the same for two who met.
fn pause(tries: u32) -> Duration {
    let spread = Uuid::new_v4().as_u64_pair().0 % 4_000;
    Duration::from_micros((1_000 + spread) << tries.min(RETRIES))
}

/// A connection of the caller's own, made as ours are.
pub(crate) async fn client(url: &str) -> Result<Conn, Error> {
    let connected = Conn::new(way_to(url)?).await;
    connected.map_err(|error| cannot_connect(&error))
}

/// How to reach a server: by TLS or not, and not for ever.
fn way_to(url: &str) -> Result<OptsBuilder, Error> {
    let (tls, opts) = parse(url)?;
    let tls = tls::settings(&tls, &opts)?;
    Ok(OptsBuilder::from_opts(opts)
        .ssl_opts(tls)
        // A server on this machine is reached as the URL says, not by a socket that it mentions.
        .prefer_socket(false)
        .tcp_keepalive(Some(Duration::from_secs(30))))
}

fn parse(url: &str) -> Result<(TlsSettings, Opts), Error> {
    let wrong = |text| ErrorKind::InvalidArgument { param: "url" }.with(text);
    let (tls, url) = TlsSettings::split(url);
    let url = match url.strip_prefix("mariadb:") {
        Some(rest) => format!("mysql:{rest}"),
        None => url,
    };
    let opts = Opts::from_url(&url).map_err(|_| wrong("not a valid mysql connection string"))?;
    if opts.db_name().is_none_or(str::is_empty) {
        return Err(wrong(
            "name a database, as in `mysql://USER@HOST/DATABASE`: the tables live in it",
        ));
    }
    tls::is_required(&tls, &opts)?;
    Ok((tls, opts))
}

/// Where a URL leads, without secrets: host, port and database, as in a URL.
pub(crate) fn place_of(url: &str) -> Result<String, Error> {
    let (_, opts) = parse(url)?;
    let database = opts.db_name().unwrap_or_default();
    Ok(match opts.socket() {
        Some(socket) => format!("mysql://{socket}/{database}"),
        None => format!(
            "mysql://{}:{}/{database}",
            opts.ip_or_hostname(),
            opts.tcp_port()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_holds_no_secret() {
        let place = place_of("mariadb://me:secret@db.example/shop?sslmode=disable");
        assert_eq!(place.expect("a place"), "mysql://db.example:3306/shop");
    }

    #[test]
    fn a_database_must_be_named() {
        for url in ["mysql://localhost", "mysql://localhost/", "mysql:"] {
            let error = place_of(url).expect_err(url);
            assert_eq!(error.param(), Some("url"), "{url}");
        }
    }
}
