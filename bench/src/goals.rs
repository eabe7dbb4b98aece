//! What the figures are to reach: ratios of one run, because machines differ and are noisy.

use serde::Serialize;

use crate::contender::Sample;
use crate::workloads::{self as w, Backend, Row};

/// Where a figure stands.
struct Of {
    workload: &'static str,
    contender: &'static str,
}

enum Against {
    Other(Of),
    /// The fastest of the peers in the same workload.
    BestPeer,
    /// A fixed amount.
    AtMost(f64),
}

#[derive(Clone, Copy)]
enum By {
    Rate,
    /// The median time from enqueue to handler: less is better.
    Latency,
    /// Peak memory in megabytes: less is better.
    Memory,
}

struct Goal {
    what: &'static str,
    backend: Backend,
    of: Of,
    against: Against,
    by: By,
    at_least: f64,
    /// What a change may not fall below, where the ratio is stable enough to say so on any machine.
    guard: Option<f64>,
}

/// A goal and what was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Reached {
    pub(crate) what: &'static str,
    pub(crate) backend: Backend,
    pub(crate) at_least: f64,
    pub(crate) measured: f64,
    /// Who the best peer was, where it is about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<String>,
    #[serde(skip)]
    pub(crate) guard: Option<f64>,
}

impl Reached {
    /// What counts is what is shown: two places.
    pub(crate) fn is_reached(&self) -> bool {
        (self.measured * 100.0).round() >= (self.at_least * 100.0).round()
    }
}

/// Every goal that the rows say something of.
pub(crate) fn reached(rows: &[Row]) -> Vec<Reached> {
    goals()
        .iter()
        .filter_map(|goal| goal.reached(rows))
        .collect()
}

/// Whether a goal guards what a workload comes to.
pub(crate) fn guards(backend: Backend, workload: &str) -> bool {
    goals()
        .iter()
        .any(|goal| goal.guard.is_some() && goal.backend == backend && goal.of.workload == workload)
}

impl Goal {
    fn reached(&self, rows: &[Row]) -> Option<Reached> {
        let find = |of: &Of| {
            rows.iter().find(|row| {
                row.backend == self.backend
                    && row.workload == of.workload
                    && row.contender == of.contender
                    && !row.rounds.is_empty()
            })
        };
        let ours = find(&self.of)?;
        let (measured, peer) = match &self.against {
            Against::AtMost(most) => {
                let figures = ours.rounds.iter().filter_map(|sample| self.figure(sample));
                (most / median(figures.collect())?, None)
            }
            Against::Other(of) => (self.ratio(ours, find(of)?)?, None),
            Against::BestPeer => {
                let peers = rows.iter().filter(|row| {
                    row.peer && row.backend == self.backend && row.workload == self.of.workload
                });
                let ratios = peers.filter_map(|peer| Some((self.ratio(ours, peer)?, peer)));
                let (ratio, peer) = ratios.min_by(|(one, _), (other, _)| one.total_cmp(other))?;
                (ratio, Some(peer.contender.clone()))
            }
        };
        Some(Reached {
            what: self.what,
            backend: self.backend,
            at_least: self.at_least,
            measured,
            peer,
            guard: self.guard,
        })
    }

    /// The median of the rounds' ratios; more is better.
    fn ratio(&self, ours: &Row, theirs: &Row) -> Option<f64> {
        let rounds = ours.rounds.iter().zip(&theirs.rounds);
        let ratios = rounds.filter_map(|(ours, theirs)| {
            let (ours, theirs) = (self.figure(ours)?, self.figure(theirs)?);
            Some(match self.by {
                By::Rate => ours / theirs,
                By::Latency | By::Memory => theirs / ours,
            })
        });
        median(ratios.collect())
    }

    fn figure(&self, sample: &Sample) -> Option<f64> {
        match self.by {
            By::Rate => Some(sample.rate),
            By::Latency => sample.p50,
            By::Memory => sample.memory,
        }
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn of(workload: &'static str, contender: &'static str) -> Of {
    Of {
        workload,
        contender,
    }
}

fn rate(
    what: &'static str,
    backend: Backend,
    workload: &'static str,
    against: Against,
    at_least: f64,
) -> Goal {
    Goal {
        what,
        backend,
        of: of(workload, w::POSTROOM),
        against,
        by: By::Rate,
        at_least,
        guard: None,
    }
}

fn guarded(goal: Goal, guard: f64) -> Goal {
    Goal {
        guard: Some(guard),
        ..goal
    }
}

fn goals() -> Vec<Goal> {
    use Against::{AtMost, BestPeer, Other};
    use Backend::{Mysql, Postgres, Sqlite};
    let floor = |workload| Other(of(workload, w::FLOOR));
    let alike = |workload| Other(of(workload, w::POSTROOM));
    vec![
        rate("drain / best peer", Postgres, w::DRAIN, BestPeer, 2.5),
        Goal {
            of: of(w::DRAIN, w::NO_ARCHIVE),
            ..rate(
                "drain, nothing kept / best peer",
                Postgres,
                w::DRAIN,
                BestPeer,
                2.5,
            )
        },
        guarded(
            rate(
                "drain / its own statements",
                Postgres,
                w::DRAIN,
                floor(w::DRAIN),
                0.8,
            ),
            0.5,
        ),
        Goal {
            of: of(w::DRAIN, w::BY_HAND),
            ..rate(
                "claim and ack / its own statements",
                Postgres,
                w::DRAIN,
                floor(w::DRAIN),
                0.8,
            )
        },
        rate(
            "drain / a table whose status flips",
            Postgres,
            w::DRAIN,
            Other(of(w::DRAIN, w::CLASSIC)),
            0.9,
        ),
        rate(
            "enqueue, 1 task / its own statement",
            Postgres,
            w::ENQUEUE_1,
            floor(w::ENQUEUE_1),
            0.9,
        ),
        guarded(
            rate(
                "enqueue, 16 tasks / its own statement",
                Postgres,
                w::ENQUEUE_16,
                floor(w::ENQUEUE_16),
                0.9,
            ),
            0.6,
        ),
        rate(
            "enqueue, 1 task / best peer",
            Postgres,
            w::ENQUEUE_1,
            BestPeer,
            1.0,
        ),
        rate(
            "enqueue, 16 tasks / best peer",
            Postgres,
            w::ENQUEUE_16,
            BestPeer,
            1.0,
        ),
        guarded(
            rate(
                "bulk enqueue / UNNEST",
                Postgres,
                w::BULK_ENQUEUE,
                floor(w::BULK_ENQUEUE),
                0.85,
            ),
            0.55,
        ),
        rate(
            "bulk enqueue / best peer",
            Postgres,
            w::BULK_ENQUEUE,
            BestPeer,
            1.0,
        ),
        Goal {
            by: By::Latency,
            ..rate(
                "idle latency p50, LISTEN and claim / postroom",
                Postgres,
                w::LATENCY,
                floor(w::LATENCY),
                0.75,
            )
        },
        rate(
            "enqueue, 16 tasks, with / without a dispatcher",
            Postgres,
            w::ENQUEUE_DISPATCHING,
            Other(of(w::ENQUEUE_DISPATCHING, w::NO_DISPATCHER)),
            0.85,
        ),
        rate(
            "drain of 500,000 / of 50,000",
            Postgres,
            w::DRAIN_DEEP,
            alike(w::DRAIN_SHAPE),
            0.9,
        ),
        rate(
            "drain, 1,000,000 done kept / none",
            Postgres,
            w::DRAIN_KEPT,
            alike(w::DRAIN_SHAPE),
            0.95,
        ),
        rate(
            "steady state, held snapshot / none",
            Postgres,
            w::STEADY_SNAPSHOT,
            alike(w::STEADY),
            0.6,
        ),
        rate(
            "drain, all in joins / none",
            Postgres,
            w::DRAIN_JOINS,
            alike(w::DRAIN_SHAPE),
            0.6,
        ),
        Goal {
            by: By::Memory,
            ..rate(
                "100 MB / memory of a dispatcher that drains 500,000",
                Postgres,
                w::DRAIN_DEEP,
                AtMost(100.0),
                1.0,
            )
        },
        Goal {
            of: of(w::ENQUEUE_64, w::DAEMON),
            ..rate(
                "enqueue over HTTP, 64 connections / the library",
                Postgres,
                w::ENQUEUE_64,
                alike(w::ENQUEUE_64),
                0.6,
            )
        },
        guarded(
            rate(
                "drain / its own statements",
                Sqlite,
                w::DRAIN,
                floor(w::DRAIN),
                0.8,
            ),
            0.5,
        ),
        rate(
            "enqueue, 1 task / its own statement",
            Sqlite,
            w::ENQUEUE_1,
            floor(w::ENQUEUE_1),
            0.85,
        ),
        guarded(
            rate(
                "enqueue, 64 tasks, shared commits / a transaction each",
                Sqlite,
                w::ENQUEUE_64,
                floor(w::ENQUEUE_64),
                8.0,
            ),
            4.0,
        ),
        guarded(
            rate(
                "bulk enqueue / its own statements",
                Sqlite,
                w::BULK_ENQUEUE,
                floor(w::BULK_ENQUEUE),
                0.8,
            ),
            0.55,
        ),
        rate(
            "drain of 500,000 / of 50,000",
            Sqlite,
            w::DRAIN_DEEP,
            alike(w::DRAIN_SHAPE),
            0.9,
        ),
        rate(
            "drain, 1,000,000 done kept / none",
            Sqlite,
            w::DRAIN_KEPT,
            alike(w::DRAIN_SHAPE),
            0.9,
        ),
        rate(
            "drain, all in joins / none",
            Sqlite,
            w::DRAIN_JOINS,
            alike(w::DRAIN_SHAPE),
            0.6,
        ),
        Goal {
            of: of(w::ENQUEUE_64, w::DAEMON),
            ..rate(
                "enqueue over HTTP, 64 connections / the library",
                Sqlite,
                w::ENQUEUE_64,
                alike(w::ENQUEUE_64),
                0.6,
            )
        },
        guarded(
            rate(
                "drain / raw statements",
                Mysql,
                w::DRAIN,
                floor(w::DRAIN),
                0.75,
            ),
            0.4,
        ),
        rate(
            "enqueue, 1 task / raw statement",
            Mysql,
            w::ENQUEUE_1,
            floor(w::ENQUEUE_1),
            0.85,
        ),
        guarded(
            rate(
                "enqueue, 16 tasks / raw statement",
                Mysql,
                w::ENQUEUE_16,
                floor(w::ENQUEUE_16),
                0.85,
            ),
            0.5,
        ),
        rate(
            "bulk enqueue / raw statement",
            Mysql,
            w::BULK_ENQUEUE,
            floor(w::BULK_ENQUEUE),
            0.8,
        ),
    ]
}
