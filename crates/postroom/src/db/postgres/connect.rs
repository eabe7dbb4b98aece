//! How a connection is made.

use std::sync::Arc;

use deadpool_postgres::Connect;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::db::{BoxFuture, Budget, FAREWELL, budget};

/// Connects, within the budget when there is one.
pub(super) struct Connector {
    pub(super) tls: MakeRustlsConnect,
    pub(super) budget: Option<Arc<Budget>>,
}

impl Connect for Connector {
    fn connect(
        &self,
        config: &Config,
    ) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), tokio_postgres::Error>> {
        let config = config.clone();
        Box::pin(async move {
            let permit = budget::permit(self.budget.as_ref()).await;
            let (client, connection) = config.connect(self.tls.clone()).await?;
            let Some(permit) = permit else {
                return Ok((
                    client,
                    tokio::spawn(async move {
                        // Whoever waits for an answer on this connection gets the error; nobody else
                        // needs it.
                        let _ = connection.await;
                    }),
                ));
            };
            // The pool aborts its task when it drops the client. This one goes on until the server was
            // told goodbye and had a moment to leave: only then is the connection really gone.
            let driving = tokio::spawn(async move {
                let _ = connection.await;
                tokio::time::sleep(FAREWELL).await;
                drop(permit);
            });
            let task = tokio::spawn(async move {
                let _ = driving.await;
            });
            Ok((client, task))
        })
    }
}
