//! What can go wrong, by meaning.

use std::fmt;

/// The error of every operation. [`Error::kind`] says what it means for the caller.
///
/// It never holds a payload, a secret or a connection string: of a database's error only the code
/// and the short message are kept, because the details quote the failing row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    code: Option<String>,
}

/// What an [`Error`] means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument that can never be right. Nothing was written.
    InvalidArgument {
        /// The parameter at fault.
        param: &'static str,
    },
    /// A number or a length outside its limits. Nothing was written.
    OutOfRange {
        /// The parameter at fault.
        param: &'static str,
    },
    /// What was named does not exist.
    NotFound {
        /// What was looked for.
        what: &'static str,
    },
    /// It exists already: the id was enqueued before.
    AlreadyExists {
        /// What exists.
        what: &'static str,
    },
    /// It was used before, for something else. Nothing was written.
    Conflict {
        /// The parameter at fault.
        param: &'static str,
    },
    /// A bare inbox message id that more than one source has used.
    Ambiguous {
        /// The parameter at fault.
        param: &'static str,
    },
    /// The lease was lost: the message was settled, reaped or claimed by somebody else meanwhile.
    /// Nothing was written.
    LeaseLost,
    /// The tables are missing, older or newer than this library, or were changed by hand.
    Schema,
    /// The database could not be reached, was busy, or broke the connection. Trying again may help.
    /// When it happened during a write, the write may or may not have been committed.
    Transient,
    /// The database refused for another reason.
    Database,
}

impl ErrorKind {
    /// An error of this kind, with the sentence that explains it.
    pub(crate) fn with(self, message: impl Into<String>) -> Error {
        Error {
            kind: self,
            message: message.into(),
            code: None,
        }
    }
}

impl Error {
    /// What it means.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind == ErrorKind::Transient
    }

    /// The parameter at fault, when one is.
    #[must_use]
    pub fn param(&self) -> Option<&'static str> {
        match self.kind {
            ErrorKind::InvalidArgument { param }
            | ErrorKind::OutOfRange { param }
            | ErrorKind::Conflict { param }
            | ErrorKind::Ambiguous { param } => Some(param),
            _ => None,
        }
    }

    /// The database's own code (SQLSTATE on PostgreSQL, the extended result code on SQLite).
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Whether the database refused what it was given to store (and not the connection, the statement or
    /// the schema): the same values will be refused again.
    pub(crate) fn is_about_values(&self) -> bool {
        const SQLITE_TOO_BIG: i64 = 18;
        const SQLITE_CONSTRAINT: i64 = 19;
        const SQLITE_MISMATCH: i64 = 20;
        let Some(code) = self.code() else {
            return false;
        };
        // SQL Server: two equal keys, a constraint, a missing value, one that is too long or of another type.
        if let Some(number) = code.strip_prefix("MSSQLSERVER_") {
            return [
                "2601", "2627", "547", "515", "2628", "8152", "245", "8114", "8115",
            ]
            .contains(&number);
        }
        // SQLSTATE has five characters, and on MySQL a number behind it; classes 22 and 23 are about data
        // and constraints, P0 and 45 are what a trigger raises.
        let (state, _) = code.split_once(' ').unwrap_or((code, ""));
        if state.len() == 5 {
            return ["22", "23", "P0", "45"]
                .iter()
                .any(|class| state.starts_with(class));
        }
        code.parse::<i64>().is_ok_and(|code| {
            [SQLITE_TOO_BIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH].contains(&(code & 0xff))
        })
    }

    pub(crate) fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ErrorKind::InvalidArgument { param } => {
                write!(f, "invalid argument `{param}`: {}", self.message)
            }
            ErrorKind::OutOfRange { param } => {
                write!(f, "argument `{param}` is out of range: {}", self.message)
            }
            ErrorKind::Conflict { param } => {
                write!(f, "conflicting argument `{param}`: {}", self.message)
            }
            ErrorKind::Ambiguous { param } => {
                write!(f, "ambiguous argument `{param}`: {}", self.message)
            }
            ErrorKind::NotFound { what } => write!(f, "{what} not found: {}", self.message),
            ErrorKind::AlreadyExists { what } => {
                write!(f, "{what} exists already: {}", self.message)
            }
            ErrorKind::LeaseLost => write!(f, "lease lost: {}", self.message),
            ErrorKind::Schema => write!(f, "schema: {}", self.message),
            ErrorKind::Transient => write!(f, "database unavailable: {}", self.message),
            ErrorKind::Database => write!(f, "database error: {}", self.message),
        }?;
        match &self.code {
            Some(code) => write!(f, " (code {code})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// Errors that are stored with a message are cut to this many bytes.
pub(crate) const STORED_ERROR_LIMIT: usize = 2048;

/// An error text as it is stored: bounded, without NUL, and `None` when there is nothing to say.
pub(crate) fn stored_error(text: &str) -> Option<String> {
    let mut text = text.replace('\0', "\u{fffd}");
    if text.len() > STORED_ERROR_LIMIT {
        let end = (0..=STORED_ERROR_LIMIT - 3)
            .rev()
            .find(|&end| text.is_char_boundary(end))
            .unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_errors_are_bounded_at_a_character_boundary() {
        let stored = stored_error(&"é".repeat(2000)).expect("not empty");
        assert!(stored.len() <= STORED_ERROR_LIMIT);
        assert!(stored.ends_with('…'));
    }

    #[test]
    fn an_empty_error_is_no_error() {
        assert_eq!(stored_error(""), None);
        assert_eq!(stored_error("a\0b").as_deref(), Some("a\u{fffd}b"));
    }
}
