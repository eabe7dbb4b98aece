//! What was measured: as a table for a terminal, as Markdown, as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::contender::Sample;
use crate::goals::{Reached, median};
use crate::workloads::{Backend, FLOOR, Row};

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// What ran: postroom and peers, with their versions.
    pub(crate) versions: Vec<String>,
    pub(crate) cores: usize,
    pub(crate) rounds: usize,
    pub(crate) full: bool,
    pub(crate) goals: Vec<Reached>,
    pub(crate) rows: Vec<Row>,
}

const HEADINGS: [&str; 9] = [
    "workload",
    "contender",
    "messages/s",
    "of raw SQL",
    "p50 ms",
    "p99 ms",
    "WAL bytes/msg",
    "dead rows/msg",
    "memory MB",
];

impl Report {
    /// For a terminal: columns of equal width.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (backend, rows) in self.by_backend() {
            let _ = writeln!(text, "\n{}", backend.name());
            let mut lines = vec![HEADINGS.map(str::to_owned)];
            lines.extend(rows.iter().map(|row| self.cells(row)));
            let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
            let widths: Vec<usize> = (0..HEADINGS.len()).filter_map(width).collect();
            for line in &lines {
                let _ = write!(
                    text,
                    "{:<2$}  {:<3$}",
                    line[0], line[1], widths[0], widths[1]
                );
                for (cell, width) in line[2..].iter().zip(&widths[2..]) {
                    let _ = write!(text, "  {cell:>width$}");
                }
                text.truncate(text.trim_end().len());
                text.push('\n');
            }
        }
        text.push_str("\nGoals\n");
        for goal in &self.goals {
            let mark = if goal.is_reached() { " " } else { "!" };
            let peer = goal.peer.as_deref().unwrap_or_default();
            let _ = writeln!(
                text,
                "{mark} {:>6.2} of {:<5} {}: {}{}{peer}",
                goal.measured,
                goal.at_least,
                goal.backend.name(),
                goal.what,
                if peer.is_empty() { "" } else { ": " },
            );
        }
        text
    }

    /// For the documentation.
    pub(crate) fn markdown(&self) -> String {
        let mut text =
            String::from("| database | goal | at least | measured | |\n|---|---|--:|--:|---|\n");
        for goal in &self.goals {
            let peer = goal.peer.as_ref().map(|peer| format!(" ({peer})"));
            let _ = writeln!(
                text,
                "| {} | {}{} | {} | {:.2} | {} |",
                goal.backend.name(),
                goal.what,
                peer.unwrap_or_default(),
                goal.at_least,
                goal.measured,
                if goal.is_reached() {
                    "reached"
                } else {
                    "**not reached**"
                }
            );
        }
        for (backend, rows) in self.by_backend() {
            let _ = write!(
                text,
                "\n### {}\n\n| {} |\n|---|---|",
                backend.name(),
                HEADINGS.join(" | ")
            );
            text.push_str(&"--:|".repeat(HEADINGS.len() - 2));
            text.push('\n');
            for row in rows {
                let _ = writeln!(text, "| {} |", self.cells(row).join(" | "));
            }
        }
        let _ = writeln!(
            text,
            "\n{} rounds, medians, {} cores. {}.",
            self.rounds,
            self.cores,
            self.versions.join(", ")
        );
        text
    }

    fn by_backend(&self) -> Vec<(Backend, Vec<&Row>)> {
        let rows = |backend| {
            self.rows
                .iter()
                .filter(move |row| row.backend == backend)
                .collect()
        };
        let all = Backend::ALL.map(|backend| (backend, rows(backend)));
        all.into_iter()
            .filter(|(_, rows): &(_, Vec<&Row>)| !rows.is_empty())
            .collect()
    }

    fn cells(&self, row: &Row) -> [String; 9] {
        let of = |figure: fn(&Sample) -> Option<f64>| {
            median(row.rounds.iter().filter_map(figure).collect())
        };
        let shown = |figure: Option<f64>, places: usize| {
            figure.map_or_else(String::new, |figure| format!("{figure:.places$}"))
        };
        let milliseconds = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e3);
        // The rate of a latency is one of waiting.
        let paced = row
            .rounds
            .iter()
            .any(|sample| sample.p50.is_some() && sample.dead.is_none());
        let rate = of(|sample| Some(sample.rate)).filter(|_| !paced);
        [
            row.workload.clone(),
            row.contender.clone(),
            match (&row.not_run, rate) {
                (Some(_), _) => "not run".to_owned(),
                (None, rate) => shown(rate, 0),
            },
            shown(self.of_floor(row).filter(|_| !paced), 2),
            shown(milliseconds(of(|sample| sample.p50)), 2),
            shown(milliseconds(of(|sample| sample.p99)), 2),
            shown(of(|sample| sample.wal).filter(|_| !paced), 0),
            shown(of(|sample| sample.dead), 1),
            shown(of(|sample| sample.memory), 0),
        ]
    }

    /// Its rate as a part of the floor's in the same rounds.
    fn of_floor(&self, row: &Row) -> Option<f64> {
        let floor = self.rows.iter().find(|other| {
            other.backend == row.backend
                && other.workload == row.workload
                && other.contender == FLOOR
        })?;
        let rounds = row.rounds.iter().zip(&floor.rounds);
        median(rounds.map(|(ours, floor)| ours.rate / floor.rate).collect())
    }
}
