//! Connections of your own, made as the library makes its own: the same URLs, the same rules for TLS (a
//! server on another machine has to offer it, certificates are always verified), no error that quotes a
//! URL. Use any other way to connect that you like; these are for programs that have none yet.

#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::error::Error;

/// Connects to PostgreSQL. The connection lives in a task of its own, until the client is dropped.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use postroom::{Message, Postroom, client};
///
/// let url = "postgres://shop@db.example/shop";
/// let room = Postroom::connect(url).await?;
/// let mut client = client::postgres(url).await?;
/// let mut transaction = client.transaction().await?;
/// transaction.execute("INSERT INTO orders (id) VALUES (7)", &[]).await?;
/// room.outbox().enqueue_in(&mut transaction, &Message::new("order.created", "7")).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the URL is wrong, and when no connection can be made.
#[cfg(feature = "postgres")]
pub async fn postgres(url: &str) -> Result<tokio_postgres::Client, Error> {
    crate::db::postgres::client(url).await
}

/// Connects to MySQL or MariaDB, with the server's own settings for the session.
///
/// # Errors
/// When the URL is wrong, and when no connection can be made.
#[cfg(feature = "mysql")]
pub async fn mysql(url: &str) -> Result<mysql_async::Conn, Error> {
    crate::db::mysql::client(url).await
}
