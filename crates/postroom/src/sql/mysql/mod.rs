//! MySQL's and MariaDB's files: one text for both. An operation is one statement or several that run in
//! one transaction under READ COMMITTED.
//!
//! What to know of the shapes:
//! - Nothing returns what it changed, so rows are locked and read first, or written down in a variable of
//!   the session (`@postroom_…`) that later statements read.
//! - An UPDATE or DELETE of several tables locks what it only reads. Where that would be somebody else's
//!   row, a SELECT comes before it and writes down what is to change.
//! - A derived table with a LIMIT is made before the rest runs, in its order; STRAIGHT_JOIN keeps the order
//!   of tables, FORCE INDEX (PRIMARY) the way to their rows, whatever the statistics say.

use crate::sql::LATE_COMMITS;
use crate::sql::catalog::{
    By, Files, INBOX_COLUMNS, INBOX_RETURNED, OUTBOX_COLUMNS, OUTBOX_RETURNED, Queue, files_with,
};

pub(super) const FILES: Files = files_with!(
    enqueue_many: None,
    enqueue_joined: None,
    enqueue_member: Some(include_str!("enqueue_member.sql")),
    ack_and_enqueue: None,
    held: Some(include_str!("held.sql")),
    settle_and_claim: None,
    announce: None,
    held_snapshots: Some(include_str!("held_snapshots.sql")),
    table_growth: None,
    file_state: None,
    fragments: fragments,
    replaceable: &[(true, include_str!("views.sql"))],
);

/// The time when a statement begins, in microseconds since 1970, whatever the session's time zone is.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))";

/// What a claim, a replay, a purge or a cleanup has chosen. In a SELECT around it, because MySQL does not let
/// a FOR UPDATE stand over a JSON_TABLE (error 3569).
const CHOSEN: &str =
    "(SELECT i.id FROM JSON_TABLE(@postroom_chosen, '$[*]' COLUMNS (id CHAR(32) PATH '$')) AS i)";

/// What `?1`, the owner, still holds of the messages that were named. More conditions may follow.
const HELD: &str = "{id_rows} AS s STRAIGHT_JOIN {queue} AS q FORCE INDEX (PRIMARY) ON q.id = s.id \
     WHERE q.owner_token = ?1";

/// Dead inbox messages that were chosen, with the rows that remember their arrival.
const DEAD_AND_SEEN: &str = "{chosen} AS c \
     STRAIGHT_JOIN {inbox+_dead} AS d FORCE INDEX (PRIMARY) ON d.id = UNHEX(c.id) \
     STRAIGHT_JOIN {inbox+_seen} AS s FORCE INDEX (PRIMARY) ON s.message_id = d.message_id AND s.source = d.source";

fn fragments(queue: Queue, by: By) -> Vec<(&'static str, String)> {
    let columns = queue.either(OUTBOX_COLUMNS, INBOX_COLUMNS);
    let returned = queue.either(OUTBOX_RETURNED, INBOX_RETURNED);
    let only_outbox = |text: String| queue.only_outbox(text);
    let only_inbox = |text: &str| queue.only_inbox(text);
    let of = |table: &str| format!("{table}.{}", columns.replace(", ", &format!(", {table}.")));
    let held = format!("(SELECT q.message_id FROM {HELD})");
    let chosen_dead = "(SELECT d.message_id FROM {chosen} AS c STRAIGHT_JOIN {outbox+_dead} AS d \
         FORCE INDEX (PRIMARY) ON d.id = UNHEX(c.id))";
    let chosen_done = "(SELECT d.message_id FROM JSON_TABLE(@postroom_chosen, '$[*]' COLUMNS (seq BIGINT PATH '$')) \
         AS c STRAIGHT_JOIN {outbox+_done} AS d FORCE INDEX (PRIMARY) ON d.seq = c.seq)";
    let written_down = |variable: &str| {
        format!(
            "(SELECT UNHEX(i.id) AS message_id FROM JSON_TABLE({variable}, '$[*]' COLUMNS (id CHAR(32) PATH '$')) AS i)"
        )
    };
    let in_join = "AND m.join_id = ?1";
    let parameter = |of_outbox| format!("?{}", queue.number(of_outbox));
    vec![
        ("{listed_seen}", only_inbox(include_str!("listed_seen.sql"))),
        ("{counted_seen}", only_inbox(include_str!("counted_seen.sql"))),
        ("{listed}", include_str!("listed.sql").trim_end().to_owned()),
        ("{of_source}", only_inbox("\n       AND (?8 IS NULL OR source = ?8)")),
        ("{late_commits}", LATE_COMMITS.to_string()),
        ("{then_by_key}", only_inbox(", q.source {direction}, q.message_id {direction}")),
        ("{limit}", parameter(8)),
        ("{died}", include_str!("died.sql").trim_end().to_owned()),
        ("{died_of_source}", only_inbox("\n  AND (?4 IS NULL OR source = ?4)")),
        ("{matched_after}", parameter(4)),
        ("{matched_limit}", parameter(5)),
        ("{resolve}", if by == By::Key { resolve_keys() } else { String::new() }),
        ("{count_completed}", only_outbox(count_steps("1", &held, ""))),
        ("{count_failed}", only_outbox(count_steps("2", &held, ""))),
        ("{count_expired}", only_outbox(count_steps("1", chosen_done, ""))),
        ("{count_purged}", only_outbox(count_steps("2", chosen_dead, ""))),
        ("{count_reported}", count_steps("?3", "(SELECT ?2 AS message_id)", in_join)),
        ("{count_done}", count_steps("1", &written_down("@postroom_done"), in_join)),
        ("{count_dead}", count_steps("2", &written_down("@postroom_dead"), in_join)),
        ("{message_state}", include_str!("message_state.sql").trim_end().to_owned()),
        ("{shown}", format!("{returned}, q.processed_at, q.processed_by, q.status")),
        ("{returned}", returned.to_owned()),
        (
            "{with_seen}",
            only_inbox(
                "LEFT JOIN {inbox+_seen} AS seen ON seen.message_id = q.message_id AND seen.source = q.source",
            ),
        ),
        ("{held_columns_with_error}", of("q").replace("q.last_error", "COALESCE(e.error, q.last_error)")),
        ("{held_columns}", of("q")),
        (
            "{dead_columns_fresh}",
            of("d").replace("d.attempt_count, d.deferral_count, d.delivery_count", "0, 0, 0"),
        ),
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
        ("{set_backoff}", only_inbox("q.backoff_until = {now} + settled.delay,")),
        // Which joins are over is read without a lock: whoever finishes one holds it and then wants our row.
        (
            "{wake_completed}",
            only_outbox(
                "SELECT JSON_ARRAYAGG(HEX(w.message_id)) INTO @postroom_chosen FROM {id_rows} AS s \
                 STRAIGHT_JOIN {join+_wait} AS w FORCE INDEX ({name join+_wait_message}) ON w.message_id = s.id \
                 STRAIGHT_JOIN {join} AS j FORCE INDEX (PRIMARY) ON j.join_id = w.join_id WHERE j.status <> 0;\n\n\
                 UPDATE {chosen} AS c STRAIGHT_JOIN {outbox} AS o FORCE INDEX (PRIMARY) ON o.id = UNHEX(c.id) \
                 SET o.next_attempt_at = {now} WHERE o.owner_token IS NULL"
                    .to_owned(),
            ),
        ),
        // Whoever moves a message out of the dead table holds its seen row first.
        (
            "{lock_seen}",
            only_inbox(
                "SELECT COUNT(*) INTO @postroom_locked FROM (SELECT s.state FROM (\
                 SELECT d.message_id, d.source FROM {chosen} AS c STRAIGHT_JOIN {inbox+_dead} AS d \
                 FORCE INDEX (PRIMARY) ON d.id = UNHEX(c.id) LIMIT 1000000) AS k \
                 STRAIGHT_JOIN {inbox+_seen} AS s FORCE INDEX (PRIMARY) \
                 ON s.message_id = k.message_id AND s.source = k.source FOR UPDATE) AS l;\n",
            ),
        ),
        (
            "{revive_seen}",
            only_inbox(&format!(
                "UPDATE {DEAD_AND_SEEN} SET s.state = 0, s.work_id = NULL WHERE d.topic IS NULL;\n"
            )),
        ),
        ("{forget_seen}", only_inbox(&format!("DELETE s FROM {DEAD_AND_SEEN};\n"))),
        ("{held}", HELD.to_owned()),
        (
            "{id_rows}",
            match by {
                By::WorkItem => id_rows("?2"),
                By::Key => id_rows("@postroom_ids"),
            },
        ),
        // Dead messages are found in their own table: the seen rows that name them may be gone by now.
        (
            "{dead_ids}",
            match by {
                By::WorkItem => id_rows("?1"),
                By::Key => format!(
                    "(SELECT DISTINCT d.id FROM {} AS k STRAIGHT_JOIN {{inbox+_dead}} AS d \
                     ON d.message_id = k.message_id AND (k.source IS NULL OR d.source = k.source))",
                    keys("?1")
                ),
            },
        ),
        ("{chosen}", CHOSEN.to_owned()),
        ("{now}", NOW.to_owned()),
    ]
}

fn count_steps(step: &str, settled: &str, in_join: &str) -> String {
    include_str!("count_steps.sql")
        .replace("{moved}", include_str!("moved.sql").trim_end())
        .replace("{step}", step)
        .replace("{settled}", settled)
        .replace("{in_join}", in_join)
}

/// The ids of a JSON array, each with its place, counted from 1. No id is in it twice: see `Target` in
/// `store.rs`.
fn id_rows(array: &str) -> String {
    format!(
        "(SELECT UNHEX(i.id) AS id, i.n \
         FROM JSON_TABLE({array}, '$[*]' COLUMNS (n FOR ORDINALITY, id CHAR(32) PATH '$')) AS i)"
    )
}

/// A JSON array of [source or null, message id].
fn keys(array: &str) -> String {
    format!(
        "JSON_TABLE({array}, '$[*]' COLUMNS (source VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', \
         message_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]'))"
    )
}

/// Writes down the work items of keys, without locking the rows that know them.
fn resolve_keys() -> String {
    format!(
        "SELECT JSON_ARRAYAGG(HEX(w.work_id)) INTO @postroom_ids FROM (SELECT DISTINCT s.work_id FROM {} AS k \
         STRAIGHT_JOIN {{inbox+_seen}} AS s FORCE INDEX (PRIMARY) \
         ON s.message_id = k.message_id AND (k.source IS NULL OR s.source = k.source) \
         WHERE s.work_id IS NOT NULL) AS w;\n\n",
        keys("?2")
    )
}
