//! The client libraries: how each begins and ends a transaction, and how ours is told from its errors.

use deadpool_postgres::{Manager, Pool};
use diesel::connection::{Connection as _, TransactionManager as _};
use diesel_async::{AsyncConnection as _, SimpleAsyncConnection as _, TransactionManager as _};
use mysql_async::prelude::Queryable as _;
use postroom::tx;
use sea_orm::{ConnectionTrait as _, TransactionTrait as _};
use sqlx::{AssertSqlSafe, Connection as _};
use testkit::Backend;

use crate::End;
use crate::shop::{Shop, Work};

/// A client library.
pub(crate) trait Client {
    const BACKEND: Backend;

    type Error: std::error::Error;

    /// Inserts an order and does the work in one transaction, with the client's own means. The
    /// transaction ends as told even if the work fails.
    async fn transaction<W: Work>(shop: &Shop, work: W, end: End) -> Result<W::Done, Self::Error>;

    /// Our error inside of the client's.
    fn ours(error: &Self::Error) -> Option<&postroom::Error>;
}

pub(crate) struct Rusqlite;

impl Client for Rusqlite {
    const BACKEND: Backend = Backend::Sqlite;
    type Error = rusqlite::Error;

    async fn transaction<W: Work>(
        shop: &Shop,
        work: W,
        end: End,
    ) -> Result<W::Done, rusqlite::Error> {
        let mut connection = shop.fixture.sqlite();
        let mut transaction = connection.transaction().unwrap();
        transaction.execute(&shop.insert_order, []).unwrap();
        let done = tx::now(work.run(&shop.fixture.room, &mut transaction));
        shop.nothing_is_seen_yet().await;
        match end {
            End::Commit => transaction.commit().unwrap(),
            End::Rollback => transaction.rollback().unwrap(),
        }
        done
    }

    fn ours(error: &rusqlite::Error) -> Option<&postroom::Error> {
        std::error::Error::source(error)?.downcast_ref()
    }
}

pub(crate) struct TokioPostgres;

impl Client for TokioPostgres {
    const BACKEND: Backend = Backend::Postgres;
    type Error = postroom::Error;

    async fn transaction<W: Work>(
        shop: &Shop,
        work: W,
        end: End,
    ) -> Result<W::Done, postroom::Error> {
        let mut client = shop.fixture.postgres().await;
        let mut transaction = client.transaction().await.unwrap();
        transaction.execute(&shop.insert_order, &[]).await.unwrap();
        let done = work.run(&shop.fixture.room, &mut transaction).await;
        shop.nothing_is_seen_yet().await;
        match end {
            End::Commit => transaction.commit().await.unwrap(),
            End::Rollback => transaction.rollback().await.unwrap(),
        }
        done
    }

    fn ours(error: &postroom::Error) -> Option<&postroom::Error> {
        Some(error)
    }
}

pub(crate) struct Tiberius;

impl Client for Tiberius {
    const BACKEND: Backend = Backend::SqlServer;
    type Error = postroom::Error;

    async fn transaction<W: Work>(
        shop: &Shop,
        work: W,
        end: End,
    ) -> Result<W::Done, postroom::Error> {
        let mut client = shop.fixture.sqlserver().await;
        client.begin_transaction().await.unwrap();
        client.execute(&shop.insert_order, &[]).await.unwrap();
        let done = work.run(&shop.fixture.room, &mut client).await;
        shop.nothing_is_seen_yet().await;
        match (end, &done) {
            (End::Commit, _) => client.commit_transaction().await.unwrap(),
            (End::Rollback, Ok(_)) => client.rollback_transaction().await.unwrap(),
            // An error of a procedure has ended the transaction already; one of ours has not.
            (End::Rollback, Err(_)) => drop(client.rollback_transaction().await),
        }
        done
    }

    fn ours(error: &postroom::Error) -> Option<&postroom::Error> {
        Some(error)
    }
}

pub(crate) struct DeadpoolPostgres;

impl Client for DeadpoolPostgres {
    const BACKEND: Backend = Backend::Postgres;
    type Error = postroom::Error;

    async fn transaction<W: Work>(
        shop: &Shop,
        work: W,
        end: End,
    ) -> Result<W::Done, postroom::Error> {
        let manager = Manager::new(shop.fixture.url.parse().unwrap(), tokio_postgres::NoTls);
        let pool = Pool::builder(manager).build().unwrap();
        let mut client = pool.get().await.unwrap();
        let mut transaction = client.transaction().await.unwrap();
        transaction.execute(&shop.insert_order, &[]).await.unwrap();
        let done = work.run(&shop.fixture.room, &mut transaction).await;
        shop.nothing_is_seen_yet().await;
        match end {
            End::Commit => transaction.commit().await.unwrap(),
            End::Rollback => transaction.rollback().await.unwrap(),
        }
        done
    }

    fn ours(error: &postroom::Error) -> Option<&postroom::Error> {
        Some(error)
    }
}

macro_rules! sqlx_client {
    ($client:ident: $connection:ident, $backend:ident) => {
        pub(crate) struct $client;

        impl Client for $client {
            const BACKEND: Backend = Backend::$backend;
            type Error = sqlx::Error;

            async fn transaction<W: Work>(
                shop: &Shop,
                work: W,
                end: End,
            ) -> Result<W::Done, sqlx::Error> {
                let mut connection = sqlx::$connection::connect(&shop.fixture.url).await.unwrap();
                let mut transaction = connection.begin().await.unwrap();
                sqlx::query(AssertSqlSafe(&*shop.insert_order))
                    .execute(&mut *transaction)
                    .await
                    .unwrap();
                let done = work.run(&shop.fixture.room, &mut transaction).await;
                shop.nothing_is_seen_yet().await;
                match end {
                    End::Commit => transaction.commit().await.unwrap(),
                    End::Rollback => transaction.rollback().await.unwrap(),
                }
                done
            }

            fn ours(error: &sqlx::Error) -> Option<&postroom::Error> {
                std::error::Error::source(error)?.downcast_ref()
            }
        }
    };
}

sqlx_client!(SqlxPostgres: PgConnection, Postgres);
sqlx_client!(SqlxSqlite: SqliteConnection, Sqlite);
sqlx_client!(SqlxMySql: MySqlConnection, MySql);

pub(crate) struct MysqlAsync;

impl Client for MysqlAsync {
    const BACKEND: Backend = Backend::MySql;
    type Error = mysql_async::Error;

    async fn transaction<W: Work>(
        shop: &Shop,
        work: W,
        end: End,
    ) -> Result<W::Done, mysql_async::Error> {
        let mut connection = shop.fixture.mysql().await;
        let mut transaction = testkit::mysql::begin(&mut connection).await;
        transaction.query_drop(&shop.insert_order).await.unwrap();
        let done = work.run(&shop.fixture.room, &mut transaction).await;
        shop.nothing_is_seen_yet().await;
        match end {
            End::Commit => transaction.commit().await.unwrap(),
            End::Rollback => transaction.rollback().await.unwrap(),
        }
        done
    }

    fn ours(error: &mysql_async::Error) -> Option<&postroom::Error> {
        match error {
            mysql_async::Error::Other(source) => source.downcast_ref(),
            _ => None,
        }
    }
}

pub(crate) struct DieselPostgres;

impl Client for DieselPostgres {
    const BACKEND: Backend = Backend::Postgres;
    type Error = diesel::result::Error;

    async fn transaction<W: Work>(
        shop: &Shop,
        work: W,
        end: End,
    ) -> Result<W::Done, diesel::result::Error> {
        let connection = diesel::PgConnection::establish(&shop.fixture.url).unwrap();
        diesel_transaction(connection, shop, work, end).await
    }

    fn ours(error: &diesel::result::Error) -> Option<&postroom::Error> {
        match error {
            diesel::result::Error::QueryBuilderError(source) => source.downcast_ref(),
            _ => None,
        }
    }
}

pub(crate) struct DieselSqlite;

impl Client for DieselSqlite {
    const BACKEND: Backend = Backend::Sqlite;
    type Error = diesel::result::Error;

    async fn transaction<W: Work>(
        shop: &Shop,
        work: W,
        end: End,
    ) -> Result<W::Done, diesel::result::Error> {
        let path = shop.fixture.url.strip_prefix("sqlite:").unwrap();
        let connection = diesel::SqliteConnection::establish(path).unwrap();
        diesel_transaction(connection, shop, work, end).await
    }

    fn ours(error: &diesel::result::Error) -> Option<&postroom::Error> {
        DieselPostgres::ours(error)
    }
}

async fn diesel_transaction<C, W: Work>(
    mut connection: C,
    shop: &Shop,
    work: W,
    end: End,
) -> Result<W::Done, C::Error>
where
    C: diesel::Connection<TransactionManager = diesel::connection::AnsiTransactionManager>
        + tx::Executor,
{
    type Transaction = diesel::connection::AnsiTransactionManager;
    Transaction::begin_transaction(&mut connection).unwrap();
    connection.batch_execute(&shop.insert_order).unwrap();
    let done = tx::now(work.run(&shop.fixture.room, &mut connection));
    shop.nothing_is_seen_yet().await;
    match end {
        End::Commit => Transaction::commit_transaction(&mut connection).unwrap(),
        End::Rollback => Transaction::rollback_transaction(&mut connection).unwrap(),
    }
    done
}

pub(crate) struct DieselAsyncPostgres;

impl Client for DieselAsyncPostgres {
    const BACKEND: Backend = Backend::Postgres;
    type Error = diesel::result::Error;

    async fn transaction<W: Work>(
        shop: &Shop,
        work: W,
        end: End,
    ) -> Result<W::Done, diesel::result::Error> {
        type Transaction = diesel_async::AnsiTransactionManager;
        let mut connection = diesel_async::AsyncPgConnection::establish(&shop.fixture.url)
            .await
            .unwrap();
        Transaction::begin_transaction(&mut connection)
            .await
            .unwrap();
        connection.batch_execute(&shop.insert_order).await.unwrap();
        let done = work.run(&shop.fixture.room, &mut connection).await;
        shop.nothing_is_seen_yet().await;
        match end {
            End::Commit => Transaction::commit_transaction(&mut connection)
                .await
                .unwrap(),
            End::Rollback => Transaction::rollback_transaction(&mut connection)
                .await
                .unwrap(),
        }
        done
    }

    fn ours(error: &diesel::result::Error) -> Option<&postroom::Error> {
        DieselPostgres::ours(error)
    }
}

macro_rules! sea_orm_client {
    ($client:ident: $backend:ident) => {
        pub(crate) struct $client;

        impl Client for $client {
            const BACKEND: Backend = Backend::$backend;
            type Error = sea_orm::DbErr;

            async fn transaction<W: Work>(
                shop: &Shop,
                work: W,
                end: End,
            ) -> Result<W::Done, sea_orm::DbErr> {
                sea_orm_transaction(shop, work, end).await
            }

            fn ours(error: &sea_orm::DbErr) -> Option<&postroom::Error> {
                match error {
                    sea_orm::DbErr::TryIntoErr { source, .. } => source.downcast_ref(),
                    _ => None,
                }
            }
        }
    };
}

sea_orm_client!(SeaOrmPostgres: Postgres);
sea_orm_client!(SeaOrmSqlite: Sqlite);
sea_orm_client!(SeaOrmMySql: MySql);

async fn sea_orm_transaction<W: Work>(
    shop: &Shop,
    work: W,
    end: End,
) -> Result<W::Done, sea_orm::DbErr> {
    let database = sea_orm::Database::connect(&shop.fixture.url).await.unwrap();
    let mut transaction = database.begin().await.unwrap();
    transaction
        .execute_unprepared(&shop.insert_order)
        .await
        .unwrap();
    let done = work.run(&shop.fixture.room, &mut transaction).await;
    shop.nothing_is_seen_yet().await;
    match end {
        End::Commit => transaction.commit().await.unwrap(),
        End::Rollback => transaction.rollback().await.unwrap(),
    }
    done
}
