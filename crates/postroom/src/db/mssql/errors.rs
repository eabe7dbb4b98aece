//! What SQL Server's errors mean, in words of our own: its messages quote keys and values.

use tiberius::error::Error as ClientError;

use crate::error::{Error, ErrorKind};

/// What stands before the number of an error, as in Microsoft's documentation: other databases have numbers too.
const CODE: &str = "MSSQLSERVER_";

pub(super) fn is_deadlock(error: &ClientError) -> bool {
    matches!(error.code(), Some(1205 | 3960))
}

/// What `in_transaction.sql` throws.
const NO_TRANSACTION: u32 = 53930;

/// Two keys were equal.
pub(super) fn is_duplicate(error: &ClientError) -> bool {
    matches!(error.code(), Some(2601 | 2627))
}

pub(crate) fn database_error(error: &ClientError) -> Error {
    let Some(code) = error.code() else {
        return match error {
            ClientError::Tls(_) => ErrorKind::Transient.with(
                "no TLS connection could be made: the server offers none, or its certificate is not trusted",
            ),
            ClientError::Io { .. } | ClientError::Protocol(_) | ClientError::Routing { .. } => ErrorKind::Transient
                .with("no connection could be made, or it broke; a write may or may not have committed"),
            _ => ErrorKind::Database.with("the client could not encode or decode a value"),
        };
    };
    let error = match code {
        201 | 207 | 208 | 308 | 2760 | 2812 | 4121 | 8144 | 8145 | 8146 => ErrorKind::Schema.with(
            "a table, column, index or procedure is missing; run `deploy()` or `postroom schema deploy`",
        ),
        2714 => ErrorKind::Schema
            .with("a table of this name belongs to somebody else; choose other table names"),
        547 => ErrorKind::NotFound { what: "join" }.with("no join has this id"),
        2601 | 2627 => {
            ErrorKind::AlreadyExists { what: "work item" }.with("this id was enqueued before")
        }
        1205 | 3960 => ErrorKind::Transient.with("a deadlock or a conflict undid the transaction"),
        3902 | 3903 | 3930 | 3998 | NO_TRANSACTION => {
            ErrorKind::Transient.with("the transaction is over, or the server has undone it")
        }
        1222 => ErrorKind::Transient.with("a lock was not to be had in time"),
        701 | 802 | 1101 | 1105 | 9002 | 9100 => {
            ErrorKind::Transient.with("the server has no memory or no disk left")
        }
        233 | 596 | 6005 | 10053 | 10054 | 10060 | 17142 | 40197 | 40501 | 40613 | 10928 | 10929
        | 49918 | 49919 | 49920 => ErrorKind::Transient.with("the server is busy or away"),
        4060 | 18452 | 18456 | 18470 => {
            ErrorKind::Database.with("the server refused the login or the database")
        }
        229 | 230 | 262 | 297 | 300 => ErrorKind::Database.with("the login lacks a permission"),
        2628 | 8152 => ErrorKind::Database.with("a value is longer than its column"),
        _ => ErrorKind::Database.with("the database refused; its error number says why"),
    };
    error.with_code(format!("{CODE}{code}"))
}
