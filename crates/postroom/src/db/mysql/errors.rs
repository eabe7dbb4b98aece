//! What MySQL's errors mean, in words that quote nothing: its own texts quote values and whole statements.

use mysql_async::{DriverError, IoError, ServerError};

use crate::error::{Error, ErrorKind};

/// Why work on a connection failed.
pub(super) enum Failure {
    /// The server or the client said so.
    Client(mysql_async::Error),
    /// We did.
    Ours(Error),
}

impl Failure {
    /// Whether the connection is of no use any more.
    pub(super) fn is_fatal(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_fatal())
    }

    /// Whether others' locks were in the way, and it may go better next time.
    pub(super) fn is_lock_conflict(&self) -> bool {
        matches!(self, Self::Client(error) if [Some(DEADLOCK), Some(LOCK_TIMEOUT)].contains(&code(error)))
    }

    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Client(error) => database_error(&error),
            Self::Ours(error) => error,
        }
    }
}

impl From<mysql_async::Error> for Failure {
    fn from(error: mysql_async::Error) -> Self {
        Self::Client(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

const DEADLOCK: u16 = 1213;
const LOCK_TIMEOUT: u16 = 1205;
/// Table, column and key that are there already.
const EXISTS: [u16; 3] = [1050, 1060, 1061];

fn code(error: &mysql_async::Error) -> Option<u16> {
    said(error).map(|error| error.code)
}

/// What the server said, if it was the server.
fn said(error: &mysql_async::Error) -> Option<&ServerError> {
    match error {
        mysql_async::Error::Server(error) => Some(error),
        _ => None,
    }
}

/// Whether what a statement was to make is there already.
pub(super) fn exists_already(error: &mysql_async::Error) -> bool {
    code(error).is_some_and(|code| EXISTS.contains(&code))
}

/// The server's number, and our own words for it.
pub(crate) fn database_error(error: &mysql_async::Error) -> Error {
    let Some(ServerError { code, state, .. }) = said(error) else {
        return match error {
            mysql_async::Error::Io(_)
            | mysql_async::Error::Driver(DriverError::ConnectionClosed) => ErrorKind::Transient
                .with("the connection broke; a write may or may not have committed"),
            mysql_async::Error::Driver(DriverError::PacketTooLarge) => too_large(),
            _ => ErrorKind::Database.with("the client could not encode or decode a value"),
        };
    };
    let error = match *code {
        1054 | 1146 | 1176 | 1305 | 1356 => ErrorKind::Schema.with(
            "a table, column or index is missing; run `deploy()` or `postroom schema deploy`",
        ),
        1050 => ErrorKind::Schema
            .with("a table of this name belongs to somebody else; choose other table names"),
        1216 | 1452 => ErrorKind::NotFound { what: "join" }.with("no join has this id"),
        1062 => ErrorKind::AlreadyExists { what: "work item" }.with("this id was enqueued before"),
        1044 | 1045 | 1142 | 1143 | 1227 | 1698 => ErrorKind::Database
            .with("the server does not let this user in, or does not let it do this"),
        1049 => ErrorKind::Database.with("the server has no database of this name"),
        1153 | 1301 => too_large(),
        DEADLOCK => ErrorKind::Transient.with("a deadlock with others undid the transaction"),
        LOCK_TIMEOUT => ErrorKind::Transient.with("others held a lock for too long"),
        1020 | 3101 => ErrorKind::Transient.with("others changed the same rows meanwhile"),
        1206 => ErrorKind::Transient.with("the server has no room for more locks"),
        1665 => ErrorKind::Database.with(
            "the server's binlog_format is STATEMENT, which cannot log READ COMMITTED; set ROW or MIXED",
        ),
        1021 | 1114 => ErrorKind::Transient.with("the server's disk is full"),
        1040 | 1203 | 1226 => ErrorKind::Transient.with("the server has too many connections"),
        1290 | 1792 | 1836 => ErrorKind::Transient.with("the server takes no writes now"),
        1047
        | 1053
        | 1077
        | 1078
        | 1079
        | 1152
        | 1158..=1161
        | 1184
        | 1317
        | 1927
        | 1969
        | 3024
        | 4031 => ErrorKind::Transient.with("the server ended the statement or the connection"),
        _ => ErrorKind::Database.with(format!("the server refused a statement with error {code}")),
    };
    error.with_code(format!("{state} {code}"))
}

/// A call that the server would refuse for its size.
pub(super) fn too_large() -> Error {
    ErrorKind::InvalidArgument { param: "payload" }
        .with("larger than the server takes at once; raise its `max_allowed_packet`")
}

/// The same for an attempt to connect: nothing has been written then.
pub(super) fn cannot_connect(error: &mysql_async::Error) -> Error {
    match error {
        error if is_of_tls(error) => ErrorKind::Transient.with(
            "no TLS connection could be made: the server offers none, or its certificate is not trusted",
        ),
        mysql_async::Error::Io(_) => ErrorKind::Transient.with("no connection could be made"),
        error => database_error(error),
    }
}

/// Whether TLS was asked for and could not be had. What is wrong with a certificate shows inside of an error of
/// the socket.
fn is_of_tls(error: &mysql_async::Error) -> bool {
    match error {
        mysql_async::Error::Io(IoError::Tls(_))
        | mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer) => true,
        mysql_async::Error::Io(IoError::Io(error)) => error
            .get_ref()
            .is_some_and(|cause| cause.is::<rustls::Error>()),
        _ => false,
    }
}
