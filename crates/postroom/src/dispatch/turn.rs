//! One round trip of a dispatcher: settle what has gathered, claim the next.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use metrics::counter;
use uuid::Uuid;

use crate::db::{Database, Output};
use crate::error::{Error, stored_error};
use crate::id::OwnerToken;
use crate::join::{Finished, JoinStatus};
use crate::sql::{Call, Dialect, Place, Queue, Row, Value};
use crate::store::{QUICK_BATCH, Store};
use crate::watermark::next_attempts;

/// What is to become of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settlement {
    Ack,
    Abandon {
        /// Microseconds; `None` for the default backoff.
        delay: Option<i64>,
        error: Option<String>,
        deferred: bool,
    },
    Fail {
        error: String,
    },
    Release,
}

/// A message and what is to become of it.
#[derive(Debug, Clone)]
pub(super) struct Settling {
    pub(super) id: Uuid,
    pub(super) owner: OwnerToken,
    /// Where its claim has put it, if that is known.
    pub(super) place: Option<Place>,
    pub(super) settlement: Settlement,
}

impl Settling {
    /// Whether it can be acked where it lies.
    fn is_placed(&self) -> bool {
        self.settlement == Settlement::Ack && self.place.is_some()
    }
}

/// What to claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) owner: OwnerToken,
    pub(super) lease: Duration,
    pub(super) batch: usize,
    /// Whether a batch that is not filled must mean that nothing else is ready.
    pub(super) everywhere: bool,
}

/// What a round trip gave back.
#[derive(Debug, Default)]
pub(super) struct Turned {
    /// What really changed; the others' leases were lost.
    pub(super) settled: Vec<Uuid>,
    pub(super) claimed: Vec<Claimed>,
}

/// A message as it was claimed.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) row: Row,
    pub(super) place: Option<Place>,
}

/// What the statement that settles and claims tells of what it settled, before the columns of a message.
const SETTLED_COLUMNS: usize = 4;

impl Store {
    /// Settles and claims in one transaction. What was claimed by another owner meanwhile is left alone.
    pub(super) async fn turn(
        &self,
        db: &dyn Database,
        queue: Queue,
        settling: &[&Settling],
        claim: Option<Claim>,
    ) -> Result<Turned, Error> {
        let (name, sql, watermark) = self.queue(queue);
        let from = claim.and_then(|_| watermark.from());
        let started = Instant::now();
        let one_statement = sql.settle_and_claim.as_ref();
        let turned = if let Some(script) = one_statement.filter(|_| !settling.is_empty()) {
            let call = script.call(self.all_values(settling, claim, from));
            let output = self.observed("turn", name, db.run(vec![call])).await?;
            self.read_one_statement(queue, settling, output)?
        } else {
            let calls = self.one_by_one(queue, settling, claim, from);
            let operations: Vec<_> = calls.iter().map(|(operation, _)| *operation).collect();
            let calls = calls.into_iter().map(|(_, call)| call).collect();
            let output = self.observed("turn", name, db.run(calls)).await?;
            self.read_one_by_one(queue, &operations, output)?
        };
        if let Some(claim) = claim {
            let claimed = turned.claimed.len();
            let rows = turned.claimed.iter().map(|claimed| &claimed.row);
            let next_attempts = next_attempts(queue, rows);
            let filled = claimed == claim.batch;
            if claim.everywhere {
                watermark.claimed(from, started.elapsed(), filled, &next_attempts);
            } else {
                watermark.looked(from, started.elapsed(), filled, &next_attempts);
            }
            tracing::debug!(store = %self.identifier, queue = name, count = claimed, "claimed");
            counter!("postroom_claimed_total", "store" => self.identifier.clone(), "queue" => name)
                .increment(claimed as u64);
        }
        Ok(turned)
    }

    /// PostgreSQL and SQL Server: what the statement takes that settles and claims.
    fn all_values(
        &self,
        settling: &[&Settling],
        claim: Option<Claim>,
        from: Option<i64>,
    ) -> Vec<Value> {
        let mut values = claim_values(claim, from);
        values.extend([
            self.worker.as_str().into(),
            i64::from(self.keep_done).into(),
        ]);
        let ids = |picked: &[&Settling]| -> [Value; 2] {
            [
                Value::Uuids(picked.iter().map(|one| one.id).collect()),
                Value::Uuids(picked.iter().map(|one| one.owner.as_uuid()).collect()),
            ]
        };
        let (mut acked, mut failed, mut abandoned, mut released) = (vec![], vec![], vec![], vec![]);
        let (mut reasons, mut delays, mut errors, mut deferrals) = (vec![], vec![], vec![], vec![]);
        for &one in settling {
            match &one.settlement {
                Settlement::Ack => acked.push(one),
                Settlement::Release => released.push(one),
                Settlement::Fail { error } => {
                    failed.push(one);
                    reasons.push(stored_error(error));
                }
                Settlement::Abandon {
                    delay,
                    error,
                    deferred,
                } => {
                    abandoned.push(one);
                    delays.push(*delay);
                    errors.push(error.as_deref().and_then(stored_error));
                    deferrals.push(Some(i64::from(*deferred)));
                }
            }
        }
        acked.sort_by_key(|one| (!one.is_placed(), one.owner));
        values.extend(ids(&acked));
        values.extend(ids(&failed));
        values.push(Value::Texts(reasons));
        values.extend(ids(&abandoned));
        values.push(Value::Ints(delays));
        values.push(Value::Texts(errors));
        values.push(Value::Ints(deferrals));
        values.extend(ids(&released));
        if self.dialect() == Dialect::Postgres {
            values.extend(places(&acked));
        }
        values
    }

    fn read_one_statement(
        &self,
        queue: Queue,
        settling: &[&Settling],
        output: Output,
    ) -> Result<Turned, Error> {
        let mut turned = Turned::default();
        for mut row in output.rows {
            let Some(operation) = row.optional_text()? else {
                row.skip(SETTLED_COLUMNS - 1);
                turned.claimed.push(Claimed::new(queue, row));
                continue;
            };
            let ids = row.uuids()?;
            match operation.as_str() {
                "join" => {
                    let (completed, failed) = (
                        row.optional_int()?.unwrap_or_default(),
                        row.optional_int()?.unwrap_or_default(),
                    );
                    for id in ids {
                        self.join_finished(&Finished {
                            id,
                            status: if failed > 0 {
                                JoinStatus::Failed
                            } else {
                                JoinStatus::Completed
                            },
                            completed,
                            failed,
                            expected: completed + failed,
                        });
                    }
                }
                "placed" => {
                    let placed = settling.iter().filter(|one| one.is_placed());
                    let before = turned.settled.len();
                    turned.settled.extend(placed.map(|one| one.id));
                    self.log_settled("ack", queue.name(), turned.settled.len() - before);
                }
                operation => {
                    self.log_settled(known(operation), queue.name(), ids.len());
                    turned.settled.extend(ids);
                }
            }
        }
        Ok(turned)
    }

    /// The scripts of the queue, one after the other in one transaction: those of SQLite, or a claim that
    /// has nothing to settle.
    fn one_by_one(
        &self,
        queue: Queue,
        settling: &[&Settling],
        claim: Option<Claim>,
        from: Option<i64>,
    ) -> Vec<(&'static str, Call)> {
        let (_, sql, _) = self.queue(queue);
        let mut groups: BTreeMap<(u8, OwnerToken), Vec<&Settling>> = BTreeMap::new();
        for &one in settling {
            groups
                .entry((one.settlement.order(), one.owner))
                .or_default()
                .push(one);
        }
        let mut calls: Vec<(&'static str, Call)> = Vec::with_capacity(groups.len() + 1);
        for ((_, owner), group) in groups {
            let owner = owner.as_uuid();
            let ids = Value::Uuids(group.iter().map(|one| one.id).collect());
            calls.push(match group[0].settlement {
                Settlement::Ack => ("ack", sql.ack.call(self.ack_values(owner, ids))),
                Settlement::Release => ("release", sql.release.call(vec![owner.into(), ids])),
                Settlement::Fail { .. } => {
                    let errors = group.iter().map(|one| one.settlement.error()).collect();
                    let values = vec![
                        owner.into(),
                        ids,
                        Value::Texts(errors),
                        self.worker.as_str().into(),
                    ];
                    ("fail", sql.fail.call(values))
                }
                Settlement::Abandon { .. } => {
                    let each = |value: fn(&Settlement) -> Option<i64>| {
                        Value::Ints(group.iter().map(|one| value(&one.settlement)).collect())
                    };
                    let errors = group.iter().map(|one| one.settlement.error()).collect();
                    let values = vec![
                        owner.into(),
                        ids,
                        each(Settlement::delay),
                        Value::Texts(errors),
                        each(Settlement::deferral),
                    ];
                    ("abandon", sql.abandon.call(values))
                }
            });
        }
        if claim.is_some() {
            calls.push(("claim", sql.claim.call(claim_values(claim, from))));
        }
        let small = settling.len() + claim.map_or(0, |claim| claim.batch) <= QUICK_BATCH;
        if small && calls.len() == 1 {
            let only = calls
                .drain(..)
                .map(|(operation, call)| (operation, call.quick()));
            return only.collect();
        }
        calls
    }

    fn read_one_by_one(
        &self,
        queue: Queue,
        operations: &[&'static str],
        output: Output,
    ) -> Result<Turned, Error> {
        let mut turned = Turned::default();
        let mut rows = output.rows.into_iter();
        let mut start = 0;
        for (index, &operation) in operations.iter().enumerate() {
            // PostgreSQL runs one statement only, whose rows are all there are.
            let end = output.ends.get(index).copied().unwrap_or(usize::MAX);
            let part = rows.by_ref().take(end.saturating_sub(start));
            start = end;
            if operation == "claim" {
                turned.claimed = part.map(|row| Claimed::new(queue, row)).collect();
            } else {
                let settled = self.settled(part.collect())?;
                self.log_settled(operation, queue.name(), settled.len());
                turned.settled.extend(settled);
            }
        }
        Ok(turned)
    }
}

impl Claimed {
    /// PostgreSQL tells the place after all columns of the message.
    fn new(queue: Queue, row: Row) -> Self {
        let place = row.peek_place(match queue {
            Queue::Outbox => 16,
            Queue::Inbox => 20,
        });
        Self { row, place }
    }
}

impl Settlement {
    /// An abandoned wait message comes after the acks that may complete its join.
    fn order(&self) -> u8 {
        match self {
            Self::Ack => 0,
            Self::Fail { .. } => 1,
            Self::Abandon { .. } => 2,
            Self::Release => 3,
        }
    }

    fn error(&self) -> Option<String> {
        match self {
            Self::Fail { error } => stored_error(error),
            Self::Abandon { error, .. } => error.as_deref().and_then(stored_error),
            Self::Ack | Self::Release => None,
        }
    }

    fn delay(&self) -> Option<i64> {
        match self {
            Self::Abandon { delay, .. } => *delay,
            _ => None,
        }
    }

    fn deferral(&self) -> Option<i64> {
        Some(i64::from(matches!(
            self,
            Self::Abandon { deferred: true, .. }
        )))
    }
}

/// Where the messages of each claim lie, as far as that is known, which write of the table it was, and how many
/// they are. The messages of a claim stand together.
fn places(settling: &[&Settling]) -> [Value; 3] {
    let mut places = String::with_capacity(2 + settling.len() * 12);
    places.push('{');
    let (mut versions, mut counts) = (Vec::new(), Vec::new());
    for claim in settling.chunk_by(|one, next| one.owner == next.owner) {
        let of_claim = claim.iter().filter_map(|one| one.place);
        let mut count = 0;
        for place in of_claim.clone() {
            let comma = if places.len() > 1 { "," } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(places, "{comma}\"({},{})\"", place.page, place.number);
            count += 1;
        }
        if let Some(first) = of_claim.clone().next() {
            versions.push(Some(first.version));
            counts.push(Some(count));
        }
    }
    places.push('}');
    [places.into(), Value::Ints(versions), Value::Ints(counts)]
}

fn claim_values(claim: Option<Claim>, from: Option<i64>) -> Vec<Value> {
    let micros = |lease: Duration| i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
    let batch = claim.map_or(0, |claim| claim.batch);
    vec![
        claim
            .map_or(Uuid::nil(), |claim| claim.owner.as_uuid())
            .into(),
        claim.map_or(0, |claim| micros(claim.lease)).into(),
        i64::try_from(batch).unwrap_or(i64::MAX).into(),
        from.into(),
        i64::from(claim.is_none_or(|claim| claim.everywhere)).into(),
    ]
}

/// The settle function's words, as metrics want them.
fn known(operation: &str) -> &'static str {
    match operation {
        "ack" => "ack",
        "abandon" => "abandon",
        "fail" => "fail",
        _ => "release",
    }
}
