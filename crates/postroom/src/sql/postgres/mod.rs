//! PostgreSQL's files. The work is done by functions in the database (`functions/`), which carry the
//! planner's guards and serve other languages too; the files beside this one call them.

use crate::sql::LATE_COMMITS;
use crate::sql::catalog::{
    By, Files, INBOX_COLUMNS, INBOX_RETURNED, OUTBOX_COLUMNS, OUTBOX_RETURNED, Queue, files_with,
};

pub(super) const FILES: Files = files_with!(
    enqueue_many: Some(include_str!("enqueue_many.sql")),
    enqueue_joined: Some(include_str!("enqueue_joined.sql")),
    enqueue_member: None,
    ack_and_enqueue: Some(include_str!("ack_and_enqueue.sql")),
    held: None,
    settle_and_claim: Some(include_str!("settle_and_claim.sql")),
    announce: Some(include_str!("announce.sql")),
    held_snapshots: Some(include_str!("held_snapshots.sql")),
    table_growth: Some(include_str!("table_growth.sql")),
    file_state: None,
    fragments: fragments,
    replaceable: &[
        (false, include_str!("functions/new_id.sql")),
        (true, include_str!("functions/claim.sql")),
        (false, include_str!("functions/join_wake.sql")),
        (false, include_str!("functions/join_count.sql")),
        (false, include_str!("functions/join_message_state.sql")),
        (false, include_str!("functions/join_attach.sql")),
        (false, include_str!("functions/join_report.sql")),
        (false, include_str!("functions/join_reconcile.sql")),
        (false, include_str!("functions/join_cancel.sql")),
        (true, include_str!("functions/ack.sql")),
        (true, include_str!("functions/fail.sql")),
        (true, include_str!("functions/abandon.sql")),
        (true, include_str!("functions/renew.sql")),
        (true, include_str!("functions/release.sql")),
        (true, include_str!("functions/settle.sql")),
        (true, include_str!("functions/reap.sql")),
        (true, include_str!("functions/replay.sql")),
        (true, include_str!("functions/purge.sql")),
        (true, include_str!("functions/maintain.sql")),
        (true, include_str!("functions/cleanup.sql")),
        (false, include_str!("functions/outbox_enqueue.sql")),
        (false, include_str!("functions/outbox_enqueue_once.sql")),
        (false, include_str!("functions/inbox_is_done.sql")),
        (false, include_str!("functions/inbox_already_processed.sql")),
        (false, include_str!("functions/inbox_enqueue.sql")),
        (false, include_str!("functions/inbox_ids.sql")),
        (false, include_str!("functions/inbox_mark.sql")),
        (false, include_str!("functions/inbox_forget.sql")),
        (true, include_str!("functions/archive.sql")),
        (true, include_str!("functions/views.sql")),
        (false, include_str!("functions/maintain_now.sql")),
    ],
);

/// Planner guards of the hot functions: a generic plan that was made while the table was empty must
/// never turn into a sequential scan or a sort. A SET clause also holds behind a pooler.
const GUARDS: &str = "SET enable_seqscan = off\nSET enable_bitmapscan = off\nSET enable_sort = off\n\
     SET enable_hashjoin = off\nSET enable_mergejoin = off\nSET plan_cache_mode = force_generic_plan";

/// The same for functions that look into the archive, whose BRIN index needs bitmap scans.
const LOOKUP_GUARDS: &str = "SET enable_seqscan = off\nSET enable_hashjoin = off\nSET enable_mergejoin = off\n\
     SET plan_cache_mode = force_generic_plan";

/// The columns of a live message, and their types.
const OUTBOX_LIVE: &str = "id uuid, message_id uuid, created_at timestamptz, next_attempt_at timestamptz, \
     due_time timestamptz, locked_until timestamptz, last_attempt_at timestamptz, owner_token uuid, \
     attempt_count integer, deferral_count integer, delivery_count integer, topic text, correlation_id text, \
     last_error text, payload text, headers text";
const INBOX_LIVE: &str = "id uuid, created_at timestamptz, next_attempt_at timestamptz, due_time timestamptz, \
     backoff_until timestamptz, locked_until timestamptz, last_attempt_at timestamptz, owner_token uuid, \
     attempt_count integer, deferral_count integer, delivery_count integer, source text, message_id text, \
     topic text, correlation_id text, last_error text, payload text, headers text";

/// The same columns without their types.
fn names_of(typed: &str) -> String {
    let names = typed
        .split(", ")
        .filter_map(|column| column.split(' ').next());
    names.collect::<Vec<_>>().join(", ")
}

fn fragments(queue: Queue, by: By) -> Vec<(&'static str, String)> {
    let columns = queue.either(OUTBOX_COLUMNS, INBOX_COLUMNS);
    let returned = queue.either(OUTBOX_RETURNED, INBOX_RETURNED);
    let live = queue.either(OUTBOX_LIVE, INBOX_LIVE);
    let only_outbox = |text: &str| queue.only_outbox(text);
    let only_inbox = |text: &str| queue.only_inbox(text);
    let ids = |number: u8| match by {
        By::WorkItem => format!("${number}::uuid[]"),
        By::Key => format!("{{inbox+_ids}}(${number}::text::jsonb)"),
    };
    let parameter = |of_outbox, kind: &str| format!("${}::{kind}", queue.number(of_outbox));
    vec![
        ("{listed_seen}", only_inbox(include_str!("listed_seen.sql"))),
        ("{counted_seen}", only_inbox(include_str!("counted_seen.sql"))),
        ("{listed}", include_str!("listed.sql").trim_end().to_owned()),
        (
            "{of_source}",
            only_inbox("\n       AND ($8::text IS NULL OR source = $8::text COLLATE \"C\")"),
        ),
        ("{claim_from}", include_str!("claim_from.sql").trim_end().to_owned()),
        ("{late_commits}", LATE_COMMITS.to_string()),
        ("{version}", include_str!("version.sql").trim_end().to_owned()),
        ("{then_by_key}", only_inbox(", q.source {direction}, q.message_id {direction}")),
        ("{limit}", parameter(8, "bigint")),
        ("{and_source}", only_inbox(", $8::text")),
        ("{archived}", include_str!("archived.sql").trim_end().to_owned()),
        (
            "{archived_of_source}",
            only_inbox("\n          AND (p_source IS NULL OR d.source = p_source COLLATE \"C\")"),
        ),
        ("{died}", include_str!("died.sql").trim_end().to_owned()),
        (
            "{died_of_source}",
            only_inbox("\n  AND ($4::text IS NULL OR source = $4::text COLLATE \"C\")"),
        ),
        ("{matched_after}", parameter(4, "uuid")),
        ("{matched_limit}", parameter(5, "bigint")),
        (
            "{shown}",
            format!("{returned}, q.processed_at, q.processed_by, q.status"),
        ),
        ("{returned}", returned.to_owned()),
        ("{live_columns_typed}", live.to_owned()),
        ("{live_columns}", names_of(live)),
        // A lateral join with a limit is always a probe of the key, whatever the planner thinks.
        (
            "{with_seen}",
            only_inbox(
                "LEFT JOIN LATERAL (SELECT s.hash, s.first_seen, s.last_seen FROM {inbox+_seen} AS s \
                 WHERE s.message_id = q.message_id AND s.source = q.source LIMIT 1) AS seen ON true",
            ),
        ),
        (
            "{columns_with_error}",
            columns.replace("last_error", "coalesce(error, last_error)"),
        ),
        (
            "{columns_excluded}",
            format!("excluded.{}", columns.replace(", ", ", excluded.")),
        ),
        (
            "{columns_fresh}",
            columns.replace("attempt_count, deferral_count, delivery_count", "0, 0, 0"),
        ),
        ("{columns}", columns.to_owned()),
        ("{inbox_columns}", INBOX_COLUMNS.to_owned()),
        (
            "{message_id_type}",
            queue.either("uuid", "text").to_owned(),
        ),
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
                "backoff_until = statement_timestamp() + coalesce(settled.delay, \
                 make_interval(secs => least(power(2, least(q.attempt_count + 1, 30)), 60))),",
            ),
        ),
        (
            "{wake_completed}",
            only_outbox(
                "UPDATE {outbox} AS o SET next_attempt_at = statement_timestamp() \
                 FROM {join+_wait} AS w JOIN {join} AS j ON j.join_id = w.join_id \
                 WHERE w.message_id = ANY (v_ids) AND o.id = w.message_id AND j.status <> 0;",
            ),
        ),
        (
            "{count_completed}",
            only_outbox("RETURN QUERY SELECT * FROM {join+_count}(NULL, v_messages, 1::smallint);"),
        ),
        (
            "{count_failed}",
            only_outbox("RETURN QUERY SELECT * FROM {join+_count}(NULL, v_messages, 2::smallint);"),
        ),
        // Two counts would lock joins twice, each time in order, which is no order: so all are locked first.
        (
            "{count_settled}",
            only_outbox(
                "IF v_completed IS NOT NULL AND v_failed IS NOT NULL THEN \
                 PERFORM 1 FROM {join_member} AS m WHERE m.message_id = ANY (v_completed || v_failed) AND m.status = 0 \
                 ORDER BY m.message_id, m.join_id FOR NO KEY UPDATE; \
                 PERFORM 1 FROM {join} AS j WHERE j.join_id IN (SELECT m.join_id FROM {join_member} AS m \
                 WHERE m.message_id = ANY (v_completed || v_failed) AND m.status = 0) \
                 ORDER BY j.join_id FOR NO KEY UPDATE; \
                 END IF;\n    \
                 IF v_completed IS NOT NULL THEN \
                 RETURN QUERY SELECT 'join', ARRAY[c.join_id], c.completed_steps, c.failed_steps \
                 FROM {join+_count}(NULL, v_completed, 1::smallint) AS c; \
                 END IF;\n    \
                 IF v_failed IS NOT NULL THEN \
                 RETURN QUERY SELECT 'join', ARRAY[c.join_id], c.completed_steps, c.failed_steps \
                 FROM {join+_count}(NULL, v_failed, 2::smallint) AS c; \
                 END IF;",
            ),
        ),
        (
            "{completed_at_places}",
            only_outbox(
                "v_joins := pg_relation_size('{join_member}') > 0; \
                 IF v_joins THEN \
                 SELECT v_completed || array_agg(q.message_id) INTO v_completed FROM {outbox} AS q WHERE {unchanged}; \
                 END IF;",
            ),
        ),
        // A step that came to a join while the rows were being locked is counted like any other.
        (
            "{or_joins_have_come}",
            only_outbox("OR (NOT v_joins AND pg_relation_size('{join_member}') > 0)"),
        ),
        ("{declare_joins}", only_outbox("v_joins boolean;")),
        ("{unchanged}", include_str!("unchanged.sql").trim_end().to_owned()),
        (
            "{count_purged}",
            only_outbox("PERFORM {join+_count}(NULL, v_messages, 2::smallint);"),
        ),
        (
            "{reconcile_messages}",
            only_outbox("PERFORM {join+_count}(NULL, v_messages, 1::smallint);"),
        ),
        (
            "{reconcile_partition}",
            only_outbox(
                "EXECUTE format('SELECT array_agg(d.message_id) FROM %s AS d WHERE EXISTS (SELECT FROM {join_member} \
                 AS m WHERE m.message_id = d.message_id AND m.status = 0)', v_partition) INTO v_messages; \
                 PERFORM {join+_count}(NULL, v_messages, 1::smallint);",
            ),
        ),
        // Whoever moves a message out of the dead table holds its seen row, so that an enqueue of the
        // same message cannot pass between the two.
        (
            "{lock_seen}",
            only_inbox(
                "PERFORM 1 FROM {inbox+_seen} AS s JOIN {inbox+_dead} AS d ON d.message_id = s.message_id \
                 AND d.source = s.source WHERE d.id = ANY (p_ids) FOR UPDATE OF s; \
                 UPDATE {inbox+_seen} AS s SET state = 0, work_id = NULL FROM {inbox+_dead} AS d \
                 WHERE d.id = ANY (p_ids) AND d.topic IS NULL AND s.message_id = d.message_id AND s.source = d.source;",
            ),
        ),
        // A purge locks the seen rows, deletes the dead ones, and forgets exactly those: a revive that
        // was faster has moved its message out of the dead table by then.
        (
            "{lock_dead_seen}",
            only_inbox(
                "PERFORM 1 FROM {inbox+_seen} AS s JOIN {inbox+_dead} AS d ON d.message_id = s.message_id \
                 AND d.source = s.source WHERE d.id = ANY (v_ids) FOR UPDATE OF s;",
            ),
        ),
        ("{declare_sources}", only_inbox("v_sources text[];")),
        ("{and_sources}", only_inbox(", array_agg(source)")),
        ("{and_v_sources}", only_inbox(", v_sources")),
        (
            "{forget_seen}",
            only_inbox(
                "DELETE FROM {inbox+_seen} AS s USING unnest(v_sources, v_messages) AS g (source, message_id) \
                 WHERE s.message_id = g.message_id AND s.source = g.source;",
            ),
        ),
        ("{guards}", GUARDS.to_owned()),
        ("{lookup_guards}", LOOKUP_GUARDS.to_owned()),
        (
            "{read_committed}",
            "IF current_setting('transaction_isolation') <> 'read committed' THEN \
             RAISE EXCEPTION 'postroom settles messages under READ COMMITTED only' USING ERRCODE = '25000'; \
             END IF;"
                .to_owned(),
        ),
        ("{ids}", ids(2)),
        ("{dead_ids}", ids(1)),
    ]
}
