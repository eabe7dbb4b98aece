//! PostgreSQL through tokio-postgres and a small pool.
//!
//! Every operation is one statement, so it needs no BEGIN and takes one round trip; a future that is
//! dropped half way leaves a statement that the server finishes or rolls back by itself. Only schema
//! deployment opens a transaction, on a connection of its own.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, QueueMode, RecyclingMethod, Runtime,
};
use tokio_postgres::Config;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};
use uuid::Uuid;

use crate::db::tls::TlsSettings;
use crate::db::{BoxFuture, Database, Output};
use crate::error::{Error, ErrorKind};
use crate::migrate::{FUNCTIONS_VERSION, Plan};
use crate::options::Options;
use crate::sql::{Call, Dialect, Row, Script, Value};

/// How often a transaction that a deadlock undid is tried again.
const DEADLOCK_RETRIES: u32 = 5;

pub(crate) struct Postgres {
    pool: Pool,
    prepare: bool,
}

impl Postgres {
    /// Opens a pool, and says where it leads, without secrets. No connection is made until one is needed.
    pub(crate) fn open(options: &Options) -> Result<(Self, String), Error> {
        let (tls, url) = TlsSettings::split(&options.url);
        let mut config = Config::from_str(&url).map_err(|_| {
            ErrorKind::InvalidArgument { param: "url" }
                .with("not a valid postgres connection string")
        })?;
        let tls = tls.apply(&mut config)?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(10));
        }
        if config.get_application_name().is_none() {
            config.application_name("postroom");
        }
        // A peer that has vanished must not hold a call for hours.
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(30));
        }
        config.keepalives_idle(config.get_keepalives_idle().min(Duration::from_secs(30)));
        let place = place(&config);
        let manager = Manager::from_config(
            config,
            tls,
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        let mut pool = Pool::builder(manager);
        if options.prepared_statements {
            // The functions look again after they have locked; under another level they would not see
            // more than before, and refuse. Behind a pooler a setting of the session does not hold.
            pool = pool.post_create(Hook::async_fn(|client, _| {
                Box::pin(async move {
                    let settings = "SET default_transaction_isolation = 'read committed'";
                    client
                        .batch_execute(settings)
                        .await
                        .map_err(HookError::Backend)
                })
            }));
        }
        let pool = pool
            // The connection that was used last has its plans ready and its caches warm.
            .queue_mode(QueueMode::Lifo)
            .max_size(options.connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(Duration::from_secs(30)))
            .create_timeout(Some(Duration::from_secs(15)))
            .build()
            .map_err(|_| ErrorKind::Database.with("the connection pool could not be built"))?;
        Ok((
            Self {
                pool,
                prepare: options.prepared_statements,
            },
            place,
        ))
    }

    async fn connection(&self) -> Result<Object, Error> {
        use deadpool_postgres::PoolError;
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                database_error(&error)
            }
            PoolError::Timeout(_) => ErrorKind::Transient.with(
                "no connection became free in time; raise `connections` or look for slow calls",
            ),
            _ => ErrorKind::Transient.with("the connection pool is closed"),
        })
    }

    /// Runs one statement and collects its rows. After a deadlock or serialization failure nothing
    /// happened, so it is safe to try again.
    async fn statement(&self, call: &Call) -> Result<Output, Error> {
        let mut tries = 0;
        loop {
            let connection = self.connection().await?;
            match query(
                &connection,
                self.prepare,
                &call.script.parts[0].sql,
                &call.values,
            )
            .await
            {
                Ok(output) => return Ok(output),
                Err(error) if is_deadlock(&error) && tries < DEADLOCK_RETRIES => {
                    tries += 1;
                    tracing::debug!(tries, "deadlock, trying again");
                }
                Err(error) => return Err(database_error(&error)),
            }
        }
    }
}

impl Database for Postgres {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn run(&self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move {
            // Two statements would need a transaction around them: none is ever split here.
            let [call] = calls.as_slice() else {
                return Err(ErrorKind::Database.with("an operation is one statement on PostgreSQL"));
            };
            self.statement(call).await
        })
    }

    fn read(&self, call: Call) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move { self.statement(&call).await })
    }

    fn prepare(&self, scripts: Vec<Arc<Script>>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let mut connection = self.connection().await?;
            // In one transaction, so that a pooler keeps to one server.
            let transaction = connection
                .transaction()
                .await
                .map_err(|error| database_error(&error))?;
            for part in scripts.iter().flat_map(|script| &script.parts) {
                transaction
                    .prepare(&part.sql)
                    .await
                    .map_err(|error| database_error(&error))?;
            }
            transaction
                .rollback()
                .await
                .map_err(|error| database_error(&error))
        })
    }

    fn deploy(&self, plan: Plan) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let connection = self.connection().await?;
            // To its end, whatever becomes of the caller: a connection never returns to the pool with
            // an open transaction.
            tokio::spawn(async move { deploy(connection, &plan).await })
                .await
                .map_err(|_| ErrorKind::Transient.with("the deployment was stopped"))?
        })
    }

    fn applied(&self, plan: Plan) -> BoxFuture<'_, Result<Option<Vec<(i64, String)>>, Error>> {
        Box::pin(async move {
            let connection = self.connection().await?;
            applied(&connection, &plan).await
        })
    }
}

/// Host, port and database, as in a URL.
fn place(config: &Config) -> String {
    use tokio_postgres::config::Host;
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(index, host)| {
            let port = config
                .get_ports()
                .get(index)
                .or(config.get_ports().first())
                .copied()
                .unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        })
        .collect();
    format!(
        "postgres://{}/{}",
        hosts.join(","),
        config
            .get_dbname()
            .or(config.get_user())
            .unwrap_or_default()
    )
}

async fn query(
    connection: &Object,
    prepare: bool,
    sql: &str,
    values: &[Value],
) -> Result<Output, tokio_postgres::Error> {
    use futures_util::TryStreamExt;
    let stream = if prepare {
        let statement = connection.prepare_cached(sql).await?;
        connection.query_raw(&statement, values).await?
    } else {
        let typed: Vec<(&Value, Type)> =
            values.iter().map(|value| (value, type_of(value))).collect();
        connection.query_typed_raw(sql, typed).await?
    };
    let mut stream = std::pin::pin!(stream);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(decode(&row)?);
    }
    Ok(Output {
        rows,
        changed: vec![stream.rows_affected().unwrap_or(0)],
    })
}

fn decode(row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
    let mut values = Vec::with_capacity(row.len());
    for index in 0..row.len() {
        values.push(row.try_get::<_, Column>(index)?.0);
    }
    Ok(Row::new(values))
}

/// A column of any type that our statements return.
struct Column(Value);

impl<'a> FromSql<'a> for Column {
    fn from_sql(
        ty: &Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(match *ty {
            Type::UUID => Value::Uuid(Some(Uuid::from_slice(raw)?)),
            Type::INT8 => Value::Int(Some(i64::from_be_bytes(raw.try_into()?))),
            Type::INT4 => Value::Int(Some(i32::from_be_bytes(raw.try_into()?).into())),
            Type::INT2 => Value::Int(Some(i16::from_be_bytes(raw.try_into()?).into())),
            Type::BOOL => Value::Int(Some(bool::from_sql(ty, raw)?.into())),
            Type::TIMESTAMPTZ => Value::Int(Some(micros(raw)?)),
            Type::BYTEA => Value::Bytes(Some(raw.to_vec())),
            Type::UUID_ARRAY => Value::Uuids(Vec::from_sql(ty, raw)?),
            _ => Value::Text(Some(String::from_sql(ty, raw)?)),
        }))
    }

    fn from_sql_null(ty: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(match *ty {
            Type::UUID_ARRAY => Value::Uuids(Vec::new()),
            _ => Value::Int(None),
        }))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A timestamp as microseconds since 1970; PostgreSQL counts from 2000.
fn micros(raw: &[u8]) -> Result<i64, std::array::TryFromSliceError> {
    const EPOCH_DIFFERENCE: i64 = 946_684_800_000_000;
    Ok(i64::from_be_bytes(raw.try_into()?).saturating_add(EPOCH_DIFFERENCE))
}

impl ToSql for Value {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut tokio_postgres::types::private::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Int(value) => value.to_sql(ty, out),
            Self::Text(value) => value.to_sql(ty, out),
            Self::Bytes(value) => value.to_sql(ty, out),
            Self::Uuid(value) => value.to_sql(ty, out),
            Self::Ints(values) => values.to_sql(ty, out),
            Self::Texts(values) => values.to_sql(ty, out),
            Self::Uuids(values) => values.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        <i64 as ToSql>::accepts(ty)
            || <String as ToSql>::accepts(ty)
            || <Vec<u8> as ToSql>::accepts(ty)
            || <Uuid as ToSql>::accepts(ty)
            || <Vec<i64> as ToSql>::accepts(ty)
            || <Vec<String> as ToSql>::accepts(ty)
            || <Vec<Uuid> as ToSql>::accepts(ty)
    }

    tokio_postgres::types::to_sql_checked!();
}

fn type_of(value: &Value) -> Type {
    match value {
        Value::Int(_) => Type::INT8,
        Value::Text(_) => Type::TEXT,
        Value::Bytes(_) => Type::BYTEA,
        Value::Uuid(_) => Type::UUID,
        Value::Ints(_) => Type::INT8_ARRAY,
        Value::Texts(_) => Type::TEXT_ARRAY,
        Value::Uuids(_) => Type::UUID_ARRAY,
    }
}

async fn deploy(mut connection: Object, plan: &Plan) -> Result<(), Error> {
    let transaction = connection
        .transaction()
        .await
        .map_err(|error| database_error(&error))?;
    transaction
        .batch_execute(&format!("{}{}", plan.create_schema, plan.create_versions))
        .await
        .map_err(|error| database_error(&error))?;
    // Statements without a name: they work behind a pooler too.
    let rows = transaction
        .query_typed(&plan.select_versions, &[])
        .await
        .map_err(|error| database_error(&error))?;
    let mut applied: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let lost = include_str!("../sql/postgres/migrations/lost.sql");
    let lost = transaction
        .query_typed(lost, &[(&plan.replaceable(), Type::TEXT_ARRAY)])
        .await
        .map_err(|error| database_error(&error))?;
    if !lost.is_empty() {
        applied.retain(|(version, _)| *version != FUNCTIONS_VERSION);
    }
    for (version, name, checksum, sql) in plan.missing(&applied)? {
        transaction
            .batch_execute(sql)
            .await
            .map_err(|error| database_error(&error))?;
        transaction
            .query_typed(
                &plan.record_version,
                &[
                    (&version, Type::INT8),
                    (&name, Type::TEXT),
                    (&checksum, Type::TEXT),
                ],
            )
            .await
            .map_err(|error| database_error(&error))?;
        if version != FUNCTIONS_VERSION {
            tracing::info!(version, name, "applied schema migration");
        }
    }
    transaction
        .commit()
        .await
        .map_err(|error| database_error(&error))
}

async fn applied(connection: &Object, plan: &Plan) -> Result<Option<Vec<(i64, String)>>, Error> {
    match connection.query_typed(&plan.select_versions, &[]).await {
        Ok(rows) => Ok(Some(
            rows.iter().map(|row| (row.get(0), row.get(1))).collect(),
        )),
        Err(error) => {
            let error = database_error(&error);
            if error.kind() == ErrorKind::Schema {
                Ok(None)
            } else {
                Err(error)
            }
        }
    }
}

fn is_deadlock(error: &tokio_postgres::Error) -> bool {
    matches!(
        error.code().map(tokio_postgres::error::SqlState::code),
        Some("40P01" | "40001")
    )
}

/// Code and message only: detail, hint and context quote the failing row.
pub(crate) fn database_error(error: &tokio_postgres::Error) -> Error {
    let Some(database) = error.as_db_error() else {
        // The client's own words: it names no kinds.
        return match error.to_string().as_str() {
            "authentication error" | "invalid configuration" => ErrorKind::Database.with("the server asks for credentials that the URL does not give"),
            "error performing TLS handshake" => ErrorKind::Transient
                .with("no TLS connection could be made: the server offers none, or its certificate is not trusted"),
            "connection closed" | "error communicating with the server" | "timeout waiting for server" => {
                ErrorKind::Transient.with("the connection broke; a write may or may not have committed")
            }
            "error connecting to server" => ErrorKind::Transient.with("no connection could be made"),
            _ => ErrorKind::Database.with("the client could not encode or decode a value"),
        };
    };
    let code = database.code().code();
    let error = match code {
        "42P01" | "3F000" | "42883" | "42703" => ErrorKind::Schema.with(
            "a table, column or function is missing; run `deploy()` or `postroom schema deploy`",
        ),
        "42P07" => ErrorKind::Schema
            .with("a table of this name belongs to somebody else; choose other table names"),
        "23503" => ErrorKind::NotFound { what: "join" }.with("no join has this id"),
        "23505" => {
            ErrorKind::AlreadyExists { what: "work item" }.with("this id was enqueued before")
        }
        "40P01" | "40001" | "55P03" | "53100" | "53200" | "53300" | "57014" | "25006" => {
            ErrorKind::Transient.with(database.message())
        }
        _ if code.starts_with("08") || code.starts_with("57P") => {
            ErrorKind::Transient.with(database.message())
        }
        _ => ErrorKind::Database.with(database.message()),
    };
    error.with_code(code)
}
