//! The history of a message: what is known of its life, in order.

use std::time::SystemTime;

use postroom::{AuditEntry, Progress};

use super::shown::{Standing, When, counted};

/// Something that happened to a message, or will.
pub(super) struct Event {
    pub(super) when: When,
    pub(super) what: String,
    /// What went wrong, or more about it.
    pub(super) detail: Option<String>,
    pub(super) kind: &'static str,
    at: SystemTime,
}

impl Event {
    pub(super) fn new(at: SystemTime, what: impl Into<String>, kind: &'static str) -> Self {
        Self {
            when: at.into(),
            what: what.into(),
            detail: None,
            kind,
            at,
        }
    }

    fn detail(mut self, detail: Option<String>) -> Self {
        self.detail = detail;
        self
    }
}

/// Puts a life together, oldest first.
pub(super) fn timeline(
    mut events: Vec<Event>,
    due_time: Option<SystemTime>,
    progress: &Progress,
    end: Standing,
    audit: &[AuditEntry],
) -> Vec<Event> {
    if let Some(due) = due_time {
        events.push(Event::new(due, "Due, as its sender wished", "quiet"));
    }
    let attempts = counted(progress.attempt_count.into(), "attempt");
    // When it died of its last attempt, the error belongs to that.
    let is_over = progress.processed_at.is_some();
    let error = progress.last_error.clone();
    if let Some(at) = progress.last_attempt_at {
        let what = format!("Handed back, {attempts} so far");
        let error = if is_over { None } else { error.clone() };
        events.push(Event::new(at, what, "warm").detail(error));
    }
    if let Some(at) = progress.processed_at {
        let by = progress.processed_by.as_deref();
        let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
        let (what, kind, error) = match end.word {
            "dead" => ("Given up", "bad", error),
            _ => ("Done", "good", None),
        };
        events.push(Event::new(at, format!("{what}{by}"), kind).detail(error));
    }
    if !is_over {
        let now = SystemTime::now();
        let leased = progress.locked_until.filter(|until| *until > now);
        match (leased, progress.next_attempt_at) {
            (Some(until), _) => events.push(Event::new(until, "Its lease ends", "busy")),
            (None, Some(next)) if next > now && due_time != Some(next) => {
                events.push(Event::new(next, "May be claimed again", "ready"));
            }
            _ => {}
        }
    }
    for entry in audit {
        let what = format!("{} by {}", entry.action, entry.actor);
        let detail = entry.detail.clone();
        events.push(Event::new(entry.at, what, "quiet").detail(detail));
    }
    events.sort_by_key(|event| event.at);
    events
}
