//! Whether the server is still there, while it does not answer.
//!
//! The client library sets no bound on how long data may stay unacknowledged, and without one the kernel
//! waits a quarter of an hour for a peer that has vanished. How long a statement may take is not for us to
//! say, though. So an answer that is late is waited for as long as the server, asked by another connection,
//! still knows ours.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error, Opts};
use tokio::time::timeout;

/// The server at the other end of a connection.
#[derive(Clone)]
pub(super) struct Peer {
    opts: Opts,
    /// The connection's number, as the server counts.
    connection: u64,
    /// How long an answer may take before somebody asks.
    patience: Duration,
    /// How long asking may take.
    asking: Duration,
}

impl Peer {
    pub(super) fn new(opts: Opts, connection: u64) -> Self {
        Self {
            opts,
            connection,
            patience: Duration::from_secs(20),
            asking: Duration::from_secs(10),
        }
    }

    /// What the server answers; an error once it does not know the connection any more.
    pub(super) async fn answer<T, E: From<Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut work = pin!(work);
        loop {
            if let Ok(answer) = timeout(self.patience, &mut work).await {
                return answer;
            }
            tokio::select! {
                biased;
                answer = &mut work => return answer,
                knows = self.knows_us() => if !knows {
                    tracing::warn!("the server does not answer, and knows nothing of the connection");
                    return Err(Error::from(DriverError::ConnectionClosed).into());
                },
            }
        }
    }

    /// This connection is beyond any budget: it is rare and short, and within one it might have to wait for
    /// those that it asks about.
    async fn knows_us(&self) -> bool {
        let asked = timeout(self.asking, async {
            let mut conn = Conn::new(self.opts.clone()).await?;
            let known = include_str!("../../sql/mysql/known.sql");
            let known = known.replace("?1", &self.connection.to_string());
            let known: Option<i64> = conn.query_first(known).await?;
            conn.disconnect().await?;
            Ok(known.is_some())
        });
        match asked.await {
            Ok(Ok(known)) => known,
            // It may have no room for another connection, but it is there.
            Ok(Err(Error::Server(_))) => true,
            Ok(Err(_)) | Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that takes connections and says nothing, ever.
    async fn silent() -> (tokio::net::TcpListener, Peer) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let opts = Opts::from_url(&format!("mysql://127.0.0.1:{port}/d")).expect("a URL");
        let peer = Peer {
            opts,
            connection: 1,
            patience: Duration::from_millis(20),
            asking: Duration::from_millis(50),
        };
        (listener, peer)
    }

    #[tokio::test]
    async fn nobody_waits_for_a_peer_that_has_vanished() {
        let (_listener, peer) = silent().await;
        let answer: Result<(), Error> = peer.answer(std::future::pending()).await;
        assert!(matches!(
            answer,
            Err(Error::Driver(DriverError::ConnectionClosed))
        ));
    }

    #[tokio::test]
    async fn an_answer_that_comes_while_somebody_asks_counts() {
        let (_listener, peer) = silent().await;
        let late = async {
            tokio::time::sleep(Duration::from_millis(40)).await;
            Ok::<_, Error>(7)
        };
        assert_eq!(peer.answer(late).await.expect("an answer"), 7);
    }
}
