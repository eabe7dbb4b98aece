//! What happened, as every process saw it: one JSON line per event, one write per line.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub(crate) enum Event {
    Enqueued {
        message: Uuid,
    },
    /// A lease, in microseconds of the database's clock.
    Claimed {
        message: Uuid,
        owner: Uuid,
        from: u64,
        until: u64,
    },
    Renewed {
        message: Uuid,
        owner: Uuid,
        until: u64,
    },
    Settled {
        message: Uuid,
        owner: Uuid,
        how: How,
        changed: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    Acked,
    Abandoned,
}

/// Where a process writes what it does.
pub(crate) struct Recorder(File);

impl Recorder {
    pub(crate) fn new(folder: &Path, number: usize) -> Self {
        let path = folder.join(format!("history-{number}.jsonl"));
        Self(
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .unwrap(),
        )
    }

    pub(crate) fn record(&self, event: &Event) {
        let line = serde_json::to_string(event).unwrap() + "\n";
        (&self.0).write_all(line.as_bytes()).unwrap();
    }

    /// A claim: the lease began when the database said "now + lease".
    pub(crate) fn claimed(&self, message: Uuid, owner: Uuid, until: SystemTime, lease: Duration) {
        let (from, until) = (micros(until - lease), micros(until));
        self.record(&Event::Claimed {
            message,
            owner,
            from,
            until,
        });
    }
}

pub(crate) fn micros(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// All processes' events, by message.
pub(crate) fn read(folder: &Path) -> BTreeMap<Uuid, Vec<Event>> {
    let mut history: BTreeMap<Uuid, Vec<Event>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            for line in std::fs::read_to_string(path).unwrap().lines() {
                let event: Event = serde_json::from_str(line).unwrap();
                history.entry(event.message()).or_default().push(event);
            }
        }
    }
    history
}

impl Event {
    fn message(&self) -> Uuid {
        match self {
            Self::Enqueued { message }
            | Self::Claimed { message, .. }
            | Self::Renewed { message, .. }
            | Self::Settled { message, .. } => *message,
        }
    }
}

/// How often the interesting things happened.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) takeovers: usize,
    pub(crate) refused: usize,
}

/// Checks one message's life: enqueued once, leases apart from each other, settled by who held it.
pub(crate) fn check(message: Uuid, events: &[Event], summary: &mut Summary) {
    let enqueued = events
        .iter()
        .filter(|event| matches!(event, Event::Enqueued { .. }))
        .count();
    assert_eq!(enqueued, 1, "{message} was enqueued {enqueued} times");

    let mut leases: Vec<(u64, u64, Uuid)> = events
        .iter()
        .filter_map(|event| match *event {
            Event::Claimed {
                owner, from, until, ..
            } => Some((from, until, owner)),
            _ => None,
        })
        .collect();
    for event in events {
        if let Event::Renewed { owner, until, .. } = *event {
            let lease = leases.iter_mut().find(|lease| lease.2 == owner).unwrap();
            lease.1 = lease.1.max(until);
        }
    }
    leases.sort_unstable();

    let settled = |who: Uuid, what: How, whether: bool| {
        events.iter().any(|event| {
            matches!(*event, Event::Settled { owner, how, changed, .. }
                if owner == who && how == what && changed == whether)
        })
    };
    for pair in leases.windows(2) {
        let [(_, until, first), (from, _, second)] = *pair else {
            continue;
        };
        assert_ne!(first, second, "{message} was claimed twice under one token");
        let released = settled(first, How::Abandoned, true);
        assert!(
            released || from > until,
            "{message} had two live leases: {pair:?}"
        );
        assert!(
            !settled(first, How::Acked, true),
            "{message} was claimed after its ack"
        );
        if !released {
            summary.takeovers += 1;
        }
    }

    let acks: Vec<Uuid> = leases
        .iter()
        .map(|lease| lease.2)
        .filter(|owner| settled(*owner, How::Acked, true))
        .collect();
    assert_eq!(
        acks.len(),
        1,
        "{message} was acked {} times: {events:?}",
        acks.len()
    );
    assert_eq!(
        acks[0],
        leases.last().unwrap().2,
        "{message} was acked by one who had lost it"
    );
    for (position, (_, until, owner)) in leases.iter().enumerate() {
        if settled(*owner, How::Acked, false) || settled(*owner, How::Abandoned, false) {
            let next = leases
                .get(position + 1)
                .unwrap_or_else(|| panic!("{message}: a holder was refused"));
            assert!(
                next.0 > *until,
                "{message}: a holder was refused while its lease was live"
            );
            summary.refused += 1;
        }
    }
}
