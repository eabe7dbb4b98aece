//! How a connection is made, and when it may be used again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, Object, RecycleError, RecycleResult};
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, DriverError, Opts};

use super::peer::Peer;
use crate::db::budget::{self, Permit};
use crate::db::{Budget, FAREWELL};

/// An idle connection may have been closed by the server: one that was idle for so long is asked first.
const ASK_AFTER: Duration = Duration::from_secs(1);

/// Connects, within the budget when there is one.
pub(super) struct Connector {
    pub(super) opts: Opts,
    pub(super) budget: Option<Arc<Budget>>,
    pub(super) largest: Arc<Largest>,
}

/// How many bytes the server takes at once, as it said last.
pub(super) struct Largest(AtomicUsize);

/// Until it has said anything: no server takes less, unless somebody made it so.
impl Default for Largest {
    fn default() -> Self {
        Self(AtomicUsize::new(1024 * 1024))
    }
}

impl Largest {
    pub(super) fn said(&self, packet: usize) {
        self.0.store(packet, Ordering::Relaxed);
    }

    /// How many bytes of a text that is.
    pub(super) fn text(&self) -> usize {
        largest_text(self.0.load(Ordering::Relaxed))
    }
}

/// A packet holds a little more than the text.
fn largest_text(packet: usize) -> usize {
    packet.saturating_sub(1024)
}

/// A connection with its place in the budget.
pub(super) struct Link {
    conn: Option<Conn>,
    peer: Peer,
    /// How many bytes the server takes at once.
    largest: usize,
    permit: Option<Permit>,
}

impl Manager for Connector {
    type Type = Link;
    type Error = mysql_async::Error;

    async fn create(&self) -> Result<Link, mysql_async::Error> {
        let permit = budget::permit(self.budget.as_ref()).await;
        let mut conn = Conn::new(self.opts.clone()).await?;
        let connected = include_str!("../../sql/mysql/connected.sql");
        let (number, largest) = conn
            .query_first(connected)
            .await?
            .ok_or(DriverError::ConnectionClosed)?;
        self.largest.said(largest);
        Ok(Link {
            conn: Some(conn),
            peer: Peer::new(self.opts.clone(), number),
            largest,
            permit,
        })
    }

    async fn recycle(
        &self,
        link: &mut Link,
        metrics: &Metrics,
    ) -> RecycleResult<mysql_async::Error> {
        let Some(conn) = &mut link.conn else {
            return Err(RecycleError::message("closed"));
        };
        if metrics.last_used() >= ASK_AFTER {
            conn.ping().await?;
        }
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let (conn, permit) = (self.conn.take(), self.permit.take());
        let (Some(conn), Ok(runtime)) = (conn, tokio::runtime::Handle::try_current()) else {
            return;
        };
        // The server is told goodbye and has a moment to leave: only then is the connection really gone.
        runtime.spawn(async move {
            let _ = tokio::time::timeout(Duration::from_secs(1), conn.disconnect()).await;
            if permit.is_some() {
                tokio::time::sleep(FAREWELL).await;
            }
            drop(permit);
        });
    }
}

/// A connection in use. It is closed, unless it is given back: that may be done only when all that was asked
/// of it has been answered, and no transaction is open.
pub(super) struct Connection(Option<Object<Connector>>);

impl Connection {
    pub(super) fn new(object: Object<Connector>) -> Self {
        Self(Some(object))
    }

    /// The client underneath.
    pub(super) fn conn(&mut self) -> mysql_async::Result<&mut Conn> {
        self.0
            .as_mut()
            .and_then(|object| object.conn.as_mut())
            .ok_or_else(|| DriverError::ConnectionClosed.into())
    }

    /// The server at the other end.
    pub(super) fn peer(&self) -> mysql_async::Result<Peer> {
        let object = self.0.as_ref();
        let peer = object.map(|object| object.peer.clone());
        peer.ok_or_else(|| DriverError::ConnectionClosed.into())
    }

    /// How many bytes of a text the server takes at once on this connection.
    pub(super) fn largest_text(&self) -> usize {
        largest_text(self.0.as_ref().map_or(0, |object| object.largest))
    }

    /// Runs statements that return nothing and have no values.
    pub(super) async fn control(&mut self, sql: &str) -> mysql_async::Result<()> {
        let peer = self.peer()?;
        peer.answer(self.conn()?.query_drop(sql)).await
    }

    /// The rows of a statement without values.
    pub(super) async fn rows<T: FromRow + Send + 'static>(
        &mut self,
        sql: &str,
    ) -> mysql_async::Result<Vec<T>> {
        let peer = self.peer()?;
        peer.answer(self.conn()?.query(sql)).await
    }

    pub(super) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}
