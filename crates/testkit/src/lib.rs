//! Real servers and fresh stores, for postroom's own tests. Nothing here is published, and nothing
//! here touches a server that it did not start.

pub mod browser;
pub mod fixture;
pub mod logs;
mod look;
pub mod mysql;
pub mod outbox;
pub mod postgres;
pub mod server;
pub mod sqlserver;
pub mod tsql;

pub use fixture::{Backend, Fixture, eventually};
pub use outbox::{LEASE, micros};

/// Makes tests of functions `async fn(Fixture)`: one per database, in modules `sqlite`, `postgres`, `mysql`
/// and `sqlserver`. What only one database can show comes last, after its name. What says itself where it
/// belongs runs there only. Without a SQL Server that is named, its tests do nothing.
#[macro_export]
macro_rules! mount {
    ($($test:ident),+ $(,)? $(; postgres: $($postgres:ident),+ $(,)?)? $(; mysql: $($mysql:ident),+ $(,)?)?) => {
        $crate::mount!(
            sqlite: $($test),+;
            postgres: $($test),+ $($(, $postgres)+)?;
            mysql: $($test),+ $($(, $mysql)+)?;
            sqlserver: $($test),+
        );
    };
    ($(sqlite: $($sqlite:ident),+ $(,)?;)? postgres: $($postgres:ident),+ $(,)?
        $(; mysql: $($mysql:ident),+ $(,)?)? $(; sqlserver: $($sqlserver:ident),+ $(,)?)?) => {
        $(mod sqlite {
            $crate::mount!(@ Sqlite: $($sqlite),+);
        })?

        mod postgres {
            $crate::mount!(@ Postgres: $($postgres),+);
        }

        $(mod mysql {
            $crate::mount!(@ MySql: $($mysql),+);
        })?

        $(mod sqlserver {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $sqlserver() {
                if let Some(fixture) = $crate::Fixture::on_sqlserver().await {
                    super::$sqlserver(fixture).await;
                }
            })+
        })?
    };
    (@ $backend:ident: $($test:ident),+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            super::$test($crate::Fixture::new($crate::Backend::$backend).await).await;
        })+
    };
}
