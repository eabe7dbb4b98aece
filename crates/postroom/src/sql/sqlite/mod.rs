//! SQLite's files. An operation is one statement or several that run in one transaction; there is
//! only one writer at a time, so a later statement sees exactly what an earlier one did.

use crate::sql::catalog::{By, Files, INBOX_COLUMNS, OUTBOX_COLUMNS, Queue, files_with};

pub(super) const FILES: Files = files_with!(
    enqueue_many: None,
    enqueue_joined: None,
    enqueue_member: Some(include_str!("enqueue_member.sql")),
    ack_and_enqueue: None,
    held: Some(include_str!("held.sql")),
    settle_and_claim: None,
    announce: None,
    held_snapshots: None,
    table_growth: None,
    file_state: Some(include_str!("file_state.sql")),
    fragments: fragments,
    replaceable: &[(true, include_str!("views.sql"))],
);

/// The time as a caller's own connection can tell it too: SQLite knows milliseconds, we keep
/// microseconds.
const NOW: &str = "(CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000)";

/// The columns of a message in the order in which `message.rs` reads them.
const OUTBOX_RETURNED: &str = "id, message_id, topic, payload, headers, correlation_id, created_at, due_time, \
     next_attempt_at, locked_until, owner_token, attempt_count, deferral_count, delivery_count, last_attempt_at, \
     last_error";
const INBOX_RETURNED: &str = "id, source, message_id, topic, payload, headers, correlation_id, created_at, due_time, \
     next_attempt_at, locked_until, owner_token, attempt_count, deferral_count, delivery_count, last_attempt_at, \
     last_error, \
     (SELECT s.hash FROM {inbox+_seen} AS s WHERE s.message_id = q.message_id AND s.source = q.source), \
     (SELECT s.first_seen FROM {inbox+_seen} AS s WHERE s.message_id = q.message_id AND s.source = q.source), \
     (SELECT s.last_seen FROM {inbox+_seen} AS s WHERE s.message_id = q.message_id AND s.source = q.source)";

fn fragments(queue: Queue, by: By) -> Vec<(&'static str, String)> {
    let columns = queue.either(OUTBOX_COLUMNS, INBOX_COLUMNS);
    let returned = queue.either(OUTBOX_RETURNED, INBOX_RETURNED);
    let only_outbox = |text: String| queue.only_outbox(text);
    let only_inbox = |text: &str| queue.only_inbox(text);
    let count_steps = |step: &str, settled: &str, in_join: &str| {
        include_str!("count_steps.sql")
            .replace("{step}", step)
            .replace("{settled}", settled)
            .replace("{in_join}", in_join)
    };
    let held = "(SELECT message_id FROM {queue} WHERE owner_token = ?1 AND id IN {ids})";
    let chosen = "(SELECT message_id FROM temp.postroom_chosen)";
    let settled_as = |state: &str| {
        format!(
            "(SELECT m.message_id FROM {{join_member}} AS m WHERE m.join_id = ?1 AND {{message_state}} = {state})"
        )
    };
    let in_join = "AND join_id = ?1";
    let ids = |number: u8| match by {
        By::WorkItem => format!("(SELECT unhex(value) FROM json_each(?{number}))"),
        By::Key => format!("(SELECT s.id FROM {} AS s)", key_rows(number)),
    };
    let parameter = |of_outbox| format!("?{}", queue.number(of_outbox));
    vec![
        ("{listed_seen}", only_inbox(include_str!("listed_seen.sql"))),
        ("{counted_seen}", only_inbox(include_str!("counted_seen.sql"))),
        ("{listed}", include_str!("listed.sql").trim_end().to_owned()),
        ("{of_source}", only_inbox("\n      AND (?8 IS NULL OR source = ?8)")),
        ("{then_by_key}", only_inbox(", source {direction}, message_id {direction}")),
        ("{limit}", parameter(8)),
        ("{died}", include_str!("died.sql").trim_end().to_owned()),
        ("{died_of_source}", only_inbox("\n  AND (?4 IS NULL OR source = ?4)")),
        ("{matched_after}", parameter(4)),
        ("{matched_limit}", parameter(5)),
        ("{count_completed}", only_outbox(count_steps("1", held, ""))),
        ("{count_failed}", only_outbox(count_steps("2", held, ""))),
        ("{count_expired}", only_outbox(count_steps("1", chosen, ""))),
        ("{count_reported}", count_steps("?3", "(SELECT ?2)", in_join)),
        ("{count_done}", count_steps("1", &settled_as("1"), in_join)),
        ("{count_dead}", count_steps("2", &settled_as("2"), in_join)),
        ("{message_state}", include_str!("message_state.sql").trim_end().to_owned()),
        ("{shown}", format!("{returned}, processed_at, processed_by, status")),
        // RETURNING knows a table by its name only, never by an alias.
        ("{returned}", returned.replace("q.", "{queue}.")),
        ("{columns_with_error}", columns.replace("last_error", "coalesce(error, last_error)")),
        ("{columns_fresh}", columns.replace("attempt_count, deferral_count, delivery_count", "0, 0, 0")),
        ("{columns}", columns.to_owned()),
        ("{inbox_columns}", INBOX_COLUMNS.to_owned()),
        (
            "{seen_rows}",
            only_inbox(
                "UNION ALL SELECT work_id, source, message_id, first_seen, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, \
                 NULL, NULL, NULL, NULL, CASE state WHEN 0 THEN 4 WHEN 1 THEN 5 ELSE 2 END, state = 3, NULL, NULL \
                 FROM {inbox+_seen} WHERE state IN (0, 1, 3)",
            ),
        ),
        (
            "{set_backoff}",
            only_inbox(
                "backoff_until = {now} + coalesce(json_extract(?3, '$[' || min(settled.n, json_array_length(?3) - 1) || ']'), \
                 min(1 << min(attempt_count + 1, 6), 60) * 1000000),",
            ),
        ),
        (
            "{wake_completed}",
            only_outbox(
                "-- if-changed\nUPDATE {outbox} SET next_attempt_at = {now} WHERE id IN (\
                 SELECT w.message_id FROM {join+_wait} AS w JOIN {join} AS j ON j.join_id = w.join_id \
                 WHERE j.status <> 0 AND w.message_id IN {ids})"
                    .to_owned(),
            ),
        ),
        // A key finds its dead row through the seen row: by key, the seen row must be the last to change.
        (
            "{revive_seen}",
            only_inbox(
                "UPDATE {inbox+_seen} SET state = 0, work_id = NULL WHERE (message_id, source) IN (\
                 SELECT message_id, source FROM {inbox+_dead} WHERE topic IS NULL \
                 AND seq IN (SELECT seq FROM temp.postroom_chosen));\n",
            ),
        ),
        ("{count_purged}", only_outbox(count_steps("2", chosen, ""))),
        (
            "{forget_seen}",
            only_inbox(
                "DELETE FROM {inbox+_seen} WHERE (message_id, source) IN (SELECT message_id, source \
                 FROM {inbox+_dead} WHERE seq IN (SELECT seq FROM temp.postroom_chosen));\n",
            ),
        ),
        // An id that was given twice settles once.
        (
            "{id_rows}",
            match by {
                By::WorkItem => "(SELECT unhex(value) AS id, min(key) AS n FROM json_each(?2) GROUP BY value)".to_owned(),
                By::Key => key_rows(2),
            },
        ),
        ("{ids}", ids(2)),
        // Dead messages are found in their own table: the seen rows that name them may be gone by now.
        (
            "{dead_ids}",
            match by {
                By::WorkItem => ids(1),
                By::Key => "(SELECT d.id FROM json_each(?1) AS k JOIN {inbox+_dead} AS d \
                     ON d.message_id = k.value ->> 1 AND (k.value ->> 0 IS NULL OR d.source = k.value ->> 0))"
                    .to_owned(),
            },
        ),
        ("{now}", NOW.to_owned()),
    ]
}

/// Work item ids for keys: a JSON array of [source or null, message id].
fn key_rows(number: u8) -> String {
    format!(
        "(SELECT s.work_id AS id, min(k.key) AS n FROM json_each(?{number}) AS k JOIN {{inbox+_seen}} AS s \
         ON s.message_id = k.value ->> 1 AND (k.value ->> 0 IS NULL OR s.source = k.value ->> 0) \
         WHERE s.work_id IS NOT NULL GROUP BY s.work_id)"
    )
}
