//! What goes to stdout. Whoever reads it may have seen enough, as `head` does, so writing can fail.

use std::fmt::Display;
use std::io::Write;

use serde_json::Value;

/// One line for a person.
pub(crate) fn line(text: impl Display) -> std::io::Result<()> {
    writeln!(std::io::stdout().lock(), "{text}")
}

/// One document for a program.
pub(crate) fn json(value: &Value) -> std::io::Result<()> {
    line(format_args!("{value:#}"))
}

/// `1 message`, `2 messages`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
