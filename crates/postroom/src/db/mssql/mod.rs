//! SQL Server through tiberius and a small pool.
//!
//! Every operation is one batch: a statement, or a call of a procedure that is a transaction of its own. So it
//! takes one round trip, and what a future that is dropped half way leaves behind is finished or rolled back
//! by the server. Its connection is thrown away: nobody knows how much of an answer is still on the wire.

use std::sync::Arc;

use deadpool::managed::{Object, Pool};
use tiberius::error::Error as ClientError;
use tracing::instrument::WithSubscriber;

use crate::db::pool::{no_connection, small_pool};
use crate::db::{BoxFuture, Budget, Database, Output, Transaction, budget};
use crate::error::{Error, ErrorKind};
use crate::migrate::Plan;
use crate::options::Options;
use crate::sql::{Call, Dialect, Script, Value};

mod connect;
mod deploy;
mod errors;
mod place;
mod transaction;
mod values;

pub(crate) use connect::Client;
use connect::{Connector, unheard};
pub(crate) use errors::database_error;
use errors::{is_deadlock, is_duplicate};
use place::Place;
use transaction::SqlServerTransaction;

/// How often a batch that a deadlock undid is tried again.
const DEADLOCK_RETRIES: u32 = 5;

/// How often one is tried again that met a key which was not there a moment before. An upsert finds it then;
/// what is a duplicate in earnest is refused again.
const DUPLICATE_RETRIES: u32 = 2;

pub(crate) struct SqlServer {
    place: Place,
    budget: Option<Arc<Budget>>,
    pool: Arc<Pool<Connector>>,
}

impl SqlServer {
    /// Opens a pool. No connection is made until one is needed.
    pub(crate) fn open(options: &Options) -> Result<Self, Error> {
        let place = Place::parse(&options.url)?;
        place.check()?;
        Self::at(place, options.budget.clone(), options.connections)
    }

    fn at(place: Place, budget: Option<Arc<Budget>>, connections: usize) -> Result<Self, Error> {
        let connector = Connector {
            place: place.clone(),
            budget: budget.clone(),
        };
        let pool = small_pool(Pool::builder(connector), connections, budget.as_ref())?;
        Ok(Self {
            place,
            budget,
            pool,
        })
    }

    async fn connection(&self) -> Result<Object<Connector>, Error> {
        let object = self.pool.get().await;
        object.map_err(|error| no_connection(error, database_error))
    }

    /// Runs one batch and collects its rows. After a deadlock or a key that somebody else was quicker to
    /// insert nothing happened, so it is safe to try again.
    async fn batch(&self, call: &Call) -> Result<Output, Error> {
        let (mut deadlocks, mut duplicates) = (0, 0);
        loop {
            let mut connection = self.connection().await?;
            let part = &call.script.parts[0];
            match connection.query(&part.sql, &call.values).await {
                Ok(output) => {
                    Call::check(call.needs, output.changed.iter().sum())?;
                    return Ok(output);
                }
                Err(error) if is_deadlock(&error) && deadlocks < DEADLOCK_RETRIES => {
                    deadlocks += 1;
                    tracing::debug!(deadlocks, "deadlock, trying again");
                }
                Err(error) if is_duplicate(&error) && duplicates < DUPLICATE_RETRIES => {
                    duplicates += 1;
                }
                Err(error) => return Err(database_error(&error)),
            }
        }
    }
}

impl Database for SqlServer {
    fn dialect(&self) -> Dialect {
        Dialect::SqlServer
    }

    fn run(&self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move {
            // Two batches would need a transaction around them: none is ever split here.
            let [call] = calls.as_slice() else {
                return Err(ErrorKind::Database.with("an operation is one batch on SQL Server"));
            };
            self.batch(call).await
        })
    }

    fn read(&self, call: Call) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move { self.batch(&call).await })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>, Error>> {
        Box::pin(async move {
            let place = budget::transaction(self.budget.as_ref()).await;
            let connection = self.connection().await?;
            let transaction = SqlServerTransaction::begin(connection, place).await?;
            Ok(Box::new(transaction) as Box<dyn Transaction>)
        })
    }

    fn apart(&self, connections: usize) -> Result<Box<dyn Database>, Error> {
        let apart = Self::at(self.place.clone(), self.budget.clone(), connections)?;
        Ok(Box::new(apart))
    }

    fn prepare(&self, scripts: Vec<Arc<Script>>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let mut connection = self.connection().await?;
            deploy::check_names(&mut connection, &scripts).await
        })
    }

    fn deploy(&self, plan: Plan) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move { deploy::deploy(&self.place, &plan).await })
    }

    fn applied(&self, plan: Plan) -> BoxFuture<'_, Result<Option<Vec<(i64, String)>>, Error>> {
        Box::pin(async move {
            let mut connection = self.connection().await?;
            deploy::applied(&mut connection, &plan).await
        })
    }
}

/// Where a URL leads, without secrets.
pub(crate) fn place_of(url: &str) -> Result<String, Error> {
    Ok(Place::parse(url)?.to_string())
}

/// Runs one statement that is not ours and says how many rows it changed, or returned when it is a query.
pub(crate) async fn execute<S>(
    client: &mut tiberius::Client<S>,
    sql: &str,
    values: &[Value],
) -> Result<u64, ClientError>
where
    S: futures_util::io::AsyncRead + futures_util::io::AsyncWrite + Unpin + Send,
{
    let parameters = values::parameters(values);
    let call = client.execute(sql, &parameters);
    Ok(call.with_subscriber(unheard()).await?.total())
}
