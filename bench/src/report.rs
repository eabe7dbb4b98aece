//! What was measured, as a table and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

/// One comparison.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) backend: &'static str,
    pub(crate) case: &'static str,
    /// What it is compared with.
    pub(crate) against: String,
    /// Messages per second: the median of the rounds.
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    /// The median of the rounds' ratios.
    pub(crate) ratio: f64,
    pub(crate) target: f64,
    /// Bytes of write-ahead log per message, on PostgreSQL.
    pub(crate) wal_bytes_per_message: Option<f64>,
}

impl Measured {
    pub(crate) fn reached(&self) -> bool {
        self.ratio >= self.target
    }
}

pub(crate) fn table(results: &[Measured]) -> String {
    let mut table = String::new();
    let _ = writeln!(
        table,
        "{:<9} {:<24} {:>11} {:>11} {:>7} {:>7} {:>8}  against",
        "database", "case", "ours/s", "theirs/s", "ratio", "target", "WAL/msg"
    );
    for result in results {
        let wal = result
            .wal_bytes_per_message
            .map_or_else(String::new, |bytes| format!("{bytes:.0}"));
        let mark = if result.reached() {
            ""
        } else {
            "  <- below target"
        };
        let _ = writeln!(
            table,
            "{:<9} {:<24} {:>11.0} {:>11.0} {:>7.2} {:>7.2} {:>8}  {}{mark}",
            result.backend,
            result.case,
            result.ours,
            result.theirs,
            result.ratio,
            result.target,
            wal,
            result.against
        );
    }
    table
}
