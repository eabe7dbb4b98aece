//! What PostgreSQL's errors mean, in words that quote nothing.

use crate::error::{Error, ErrorKind};

pub(super) fn is_deadlock(error: &tokio_postgres::Error) -> bool {
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
