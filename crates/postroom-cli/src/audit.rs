//! Who did what by hand: every command that changes messages leaves an entry in the store's audit trail.

use postroom::{AuditEntry, Postroom};
use serde_json::{Value, json};

use crate::{age, out, table};

/// Leaves an entry about `count` things.
pub(crate) async fn record(
    room: &Postroom,
    action: &str,
    subject: &str,
    count: u64,
    detail: Option<String>,
) -> anyhow::Result<()> {
    let mut entry = AuditEntry::new(actor(), action, subject).count(count);
    if let Some(detail) = detail {
        entry = entry.detail(detail);
    }
    room.audit().record(&entry).await?;
    Ok(())
}

/// What an entry is about: one message, several, or all that a filter picks.
pub(crate) fn subject(named: &[impl ToString], filter: &[String]) -> String {
    match named {
        [] if filter.is_empty() => "all".to_owned(),
        [] => filter.join(" "),
        [one] => one.to_string(),
        several => format!("{} ids", several.len()),
    }
}

/// The ids of several messages; they are cut when there are many.
pub(crate) fn detail(named: &[impl ToString]) -> Option<String> {
    let ids: Vec<String> = named.iter().map(ToString::to_string).collect();
    (ids.len() > 1).then(|| ids.join(" "))
}

/// What was done to one thing.
pub(crate) async fn of(room: &Postroom, subject: &str) -> anyhow::Result<Vec<AuditEntry>> {
    Ok(room.audit().of(subject).await?)
}

/// Writes what was done by hand, if anything was.
pub(crate) fn print(entries: &[AuditEntry]) -> std::io::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    out::line("")?;
    let rows: Vec<_> = entries
        .iter()
        .map(|entry| {
            [
                age::stamp(entry.at),
                entry.actor.clone(),
                entry.action.clone(),
                entry.detail.clone().unwrap_or_default(),
            ]
        })
        .collect();
    table::print(["by hand", "who", "what", "detail"], &rows)
}

pub(crate) fn as_json(entry: &AuditEntry) -> Value {
    json!({
        "at": age::stamp(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "subject": entry.subject,
        "count": entry.count,
        "detail": entry.detail,
    })
}

/// The user who runs the command, as far as the environment knows.
fn actor() -> String {
    const LONGEST: usize = 60;
    let user = ["USER", "LOGNAME", "USERNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let user = user.unwrap_or_else(|| "unknown".to_owned());
    let user = user.chars().filter(|character| !character.is_control());
    format!("cli:{}", user.take(LONGEST).collect::<String>())
}
