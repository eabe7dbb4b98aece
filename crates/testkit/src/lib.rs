//! Real servers and fresh stores, for postroom's own tests. Nothing here is published, and nothing
//! here touches a server that it did not start.

pub mod browser;
pub mod fixture;
mod look;
pub mod outbox;
pub mod postgres;

pub use fixture::{Backend, Fixture, eventually};
pub use outbox::{LEASE, micros};

/// Makes tests of functions `async fn(Fixture)`: one per database, in modules `sqlite` and
/// `postgres`. What only PostgreSQL can show comes last, after `postgres:`.
#[macro_export]
macro_rules! mount {
    ($($test:ident),+ $(,)? $(; postgres: $($only:ident),+ $(,)?)?) => {
        $crate::mount!(sqlite: $($test),+; postgres: $($test),+ $($(, $only)+)?);
    };
    (sqlite: $($sqlite:ident),+ $(,)?; postgres: $($postgres:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $sqlite() {
                super::$sqlite($crate::Fixture::new($crate::Backend::Sqlite).await).await;
            })+
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $postgres() {
                super::$postgres($crate::Fixture::new($crate::Backend::Postgres).await).await;
            })+
        }
    };
}
