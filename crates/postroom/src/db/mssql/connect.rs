//! How connections are made, lent and taken back.

use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use tiberius::error::Error as ClientError;
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};
use tracing::Dispatch;
use tracing::instrument::WithSubscriber;

use super::place::Place;
use super::values::{decode, parameters};
use crate::db::budget::{self, Permit};
use crate::db::{Budget, FAREWELL, Output};
use crate::sql::Value;

/// tiberius' client, on a socket of tokio's.
pub(crate) type Client = tiberius::Client<Compat<TcpStream>>;

/// A connection that nobody has used for so long is asked for a sign of life.
const LONGEST_IDLE: Duration = Duration::from_secs(10);

/// The settings that our statements need, whatever a session was before.
const SETTINGS: &str = include_str!("../../sql/mssql/connection.sql");

/// Makes connections for a pool, within the budget when there is one.
pub(super) struct Connector {
    pub(super) place: Place,
    pub(super) budget: Option<Arc<Budget>>,
}

/// A connection, and what is known of its state.
pub(super) struct Connection {
    client: Client,
    /// A call has begun and not ended: its future was dropped, or it failed on the wire.
    busy: bool,
    /// Somebody else's statements ran on it, and may have changed its settings.
    touched: bool,
    /// Its place in the budget.
    permit: Option<Permit>,
}

impl Connection {
    pub(super) async fn open(place: &Place, patient: bool) -> Result<Self, ClientError> {
        let client = match connect(place, patient).await {
            // Azure sends its clients to the server that has the database.
            Err(ClientError::Routing { host, port }) => {
                connect(&place.moved(host, port), patient).await?
            }
            client => client?,
        };
        let mut connection = Self {
            client,
            busy: false,
            touched: false,
            permit: None,
        };
        connection.batch(SETTINGS).await?;
        Ok(connection)
    }

    /// Runs one batch and collects the rows of all its statements.
    pub(super) async fn query(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Output, ClientError> {
        self.whole(async |client| {
            let answer = client.query(sql, &parameters(values)).await?;
            let rows: Vec<_> = answer.into_results().await?.into_iter().flatten().collect();
            let rows = rows
                .into_iter()
                .map(decode)
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Output {
                ends: vec![rows.len()],
                changed: vec![rows.len() as u64],
                rows,
            })
        })
        .await
    }

    /// Runs a batch that has no parameters and whose rows nobody wants.
    pub(super) async fn batch(&mut self, sql: &str) -> Result<(), ClientError> {
        self.whole(async |client| {
            client.simple_query(sql).await?.into_results().await?;
            Ok(())
        })
        .await
    }

    /// Lends the client for statements that are not ours.
    pub(super) async fn lend<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        self.touched = true;
        self.whole(work).await
    }

    /// The client underneath, for statements that we do not see.
    pub(super) fn client(&mut self) -> &mut Client {
        self.touched = true;
        &mut self.client
    }

    /// A call that ends, or leaves the connection busy for ever: after that there is none. What the server
    /// itself refuses is an end: its answer was read.
    async fn whole<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        if self.busy {
            return Err(ClientError::Protocol("its last call has not ended".into()));
        }
        self.busy = true;
        let result = call(&mut self.client).with_subscriber(unheard()).await;
        if matches!(result, Ok(_) | Err(ClientError::Server(_))) {
            self.busy = false;
            self.touched |= result.is_err();
        }
        result
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Handle::try_current();
        if let (Some(permit), Ok(runtime)) = (self.permit.take(), runtime) {
            // The server has a moment to see that the socket is closed: only then is the connection gone.
            runtime.spawn(async move {
                tokio::time::sleep(FAREWELL).await;
                drop(permit);
            });
        }
    }
}

impl Manager for Connector {
    type Type = Connection;
    type Error = ClientError;

    async fn create(&self) -> Result<Connection, ClientError> {
        let permit = budget::permit(self.budget.as_ref()).await;
        let mut connection = Connection::open(&self.place, false).await?;
        connection.permit = permit;
        Ok(connection)
    }

    async fn recycle(
        &self,
        connection: &mut Connection,
        metrics: &Metrics,
    ) -> RecycleResult<ClientError> {
        if connection.busy {
            return Err(RecycleError::message("its last call has not ended"));
        }
        if connection.touched || metrics.last_used() > LONGEST_IDLE {
            connection.batch(SETTINGS).await?;
            connection.touched = false;
        }
        Ok(())
    }
}

async fn connect(place: &Place, patient: bool) -> Result<Client, ClientError> {
    let socket = TcpStream::connect(place.address()).await?;
    socket.set_nodelay(true)?;
    Client::connect(place.config(patient), socket.compat_write())
        .with_subscriber(unheard())
        .await
}

/// Where the client's own events go: it logs what the server says, which quotes keys, and rows with all that is in
/// them.
pub(super) fn unheard() -> Dispatch {
    Dispatch::none()
}
