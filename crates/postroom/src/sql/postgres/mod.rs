//! PostgreSQL's files. The work is done by functions in the database (`functions/`), which carry the
//! planner's guards and serve other languages too; the files beside this one call them.

use crate::sql::catalog::{By, Files, Queue};

pub(super) const FILES: Files = Files {
    enqueue: include_str!("enqueue.sql"),
    enqueue_many: Some(include_str!("enqueue_many.sql")),
    enqueue_joined: Some(include_str!("enqueue_joined.sql")),
    enqueue_member: None,
    enqueue_wait: include_str!("enqueue_wait.sql"),
    enqueue_once: include_str!("enqueue_once.sql"),
    forget_keys: include_str!("forget_keys.sql"),
    ack_and_enqueue: Some(include_str!("ack_and_enqueue.sql")),
    held: None,
    claim: include_str!("claim.sql"),
    ack: include_str!("ack.sql"),
    abandon: include_str!("abandon.sql"),
    fail: include_str!("fail.sql"),
    renew: include_str!("renew.sql"),
    release: include_str!("release.sql"),
    settle_and_claim: Some(include_str!("settle_and_claim.sql")),
    announce: Some(include_str!("announce.sql")),
    reap: include_str!("reap.sql"),
    replay: include_str!("replay.sql"),
    purge: include_str!("purge.sql"),
    cleanup: include_str!("cleanup.sql"),
    maintain: include_str!("maintain.sql"),
    get: include_str!("get.sql"),
    list: include_str!("list.sql"),
    list_count: include_str!("list_count.sql"),
    match_dead: include_str!("match_dead.sql"),
    count_dead: include_str!("count_dead.sql"),
    count: include_str!("count.sql"),
    inbox_count: include_str!("inbox_count.sql"),
    stats: include_str!("stats.sql"),
    topics: include_str!("topics.sql"),
    unattended: include_str!("unattended.sql"),
    overdue_leases: include_str!("overdue_leases.sql"),
    inbox_already_processed: include_str!("inbox_already_processed.sql"),
    inbox_enqueue: include_str!("inbox_enqueue.sql"),
    inbox_mark: include_str!("inbox_mark.sql"),
    inbox_get: include_str!("inbox_get.sql"),
    inbox_forget: include_str!("inbox_forget.sql"),
    join_start: include_str!("join_start.sql"),
    join_attach: include_str!("join_attach.sql"),
    join_report: include_str!("join_report.sql"),
    join_reconcile: include_str!("join_reconcile.sql"),
    join_cancel: include_str!("join_cancel.sql"),
    join_get: include_str!("join_get.sql"),
    join_list: include_str!("join_list.sql"),
    join_recent: include_str!("join_recent.sql"),
    join_members: include_str!("join_members.sql"),
    join_cleanup: include_str!("join_cleanup.sql"),
    audit_record: include_str!("audit_record.sql"),
    audit_list: include_str!("audit_list.sql"),
    audit_cleanup: include_str!("audit_cleanup.sql"),
    clock: include_str!("clock.sql"),
    totals: include_str!("totals.sql"),
    invalid_indexes: include_str!("invalid_indexes.sql"),
    held_snapshots: Some(include_str!("held_snapshots.sql")),
    table_growth: Some(include_str!("table_growth.sql")),
    file_state: None,
    fragments,
    migrations: &[
        (1, "outbox", include_str!("migrations/0001_outbox.sql")),
        (2, "inbox", include_str!("migrations/0002_inbox.sql")),
        (3, "joins", include_str!("migrations/0003_joins.sql")),
        (4, "headers", include_str!("migrations/0004_headers.sql")),
        (
            5,
            "operations",
            include_str!("migrations/0005_operations.sql"),
        ),
    ],
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
};

const OUTBOX_COLUMNS: &str = "id, message_id, created_at, due_time, last_attempt_at, attempt_count, deferral_count, \
     delivery_count, topic, correlation_id, last_error, payload, headers";
const INBOX_COLUMNS: &str = "id, source, message_id, created_at, due_time, last_attempt_at, attempt_count, \
     deferral_count, delivery_count, topic, correlation_id, last_error, payload, headers";

/// The columns of a message in the order in which `message.rs` reads them.
const OUTBOX_RETURNED: &str = "q.id, q.message_id, q.topic, q.payload, q.headers, q.correlation_id, q.created_at, \
     q.due_time, q.next_attempt_at, q.locked_until, q.owner_token, q.attempt_count, q.deferral_count, \
     q.delivery_count, q.last_attempt_at, q.last_error";
const INBOX_RETURNED: &str = "q.id, q.source, q.message_id, q.topic, q.payload, q.headers, q.correlation_id, \
     q.created_at, q.due_time, q.next_attempt_at, q.locked_until, q.owner_token, q.attempt_count, q.deferral_count, \
     q.delivery_count, q.last_attempt_at, q.last_error, seen.hash, seen.first_seen, seen.last_seen";

/// Planner guards of the hot functions: a generic plan that was made while the table was empty must
/// never turn into a sequential scan or a sort. A SET clause also holds behind a pooler.
const GUARDS: &str = "SET enable_seqscan = off\nSET enable_bitmapscan = off\nSET enable_sort = off\n\
     SET enable_hashjoin = off\nSET enable_mergejoin = off\nSET plan_cache_mode = force_generic_plan";

/// The same for functions that look into the archive, whose BRIN index needs bitmap scans.
const LOOKUP_GUARDS: &str = "SET enable_seqscan = off\nSET enable_hashjoin = off\nSET enable_mergejoin = off\n\
     SET plan_cache_mode = force_generic_plan";

fn fragments(queue: Queue, by: By) -> Vec<(&'static str, String)> {
    let outbox = queue == Queue::Outbox;
    let columns = if outbox {
        OUTBOX_COLUMNS
    } else {
        INBOX_COLUMNS
    };
    let returned = if outbox {
        OUTBOX_RETURNED
    } else {
        INBOX_RETURNED
    };
    let only_outbox = |text: &str| {
        if outbox {
            text.to_owned()
        } else {
            String::new()
        }
    };
    let only_inbox = |text: &str| {
        if outbox {
            String::new()
        } else {
            text.to_owned()
        }
    };
    let ids = |number: u8| match by {
        By::WorkItem => format!("${number}::uuid[]"),
        By::Key => format!("{{inbox+_ids}}(${number}::text::jsonb)"),
    };
    let parameter =
        |outbox_number: u8, kind: &str| format!("${}::{kind}", outbox_number + u8::from(!outbox));
    vec![
        ("{listed_seen}", only_inbox(include_str!("listed_seen.sql"))),
        ("{counted_seen}", only_inbox(include_str!("counted_seen.sql"))),
        ("{listed}", include_str!("listed.sql").trim_end().to_owned()),
        (
            "{of_source}",
            only_inbox("\n       AND ($8::text IS NULL OR source = $8::text COLLATE \"C\")"),
        ),
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
            if outbox { "uuid" } else { "text" }.to_owned(),
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
