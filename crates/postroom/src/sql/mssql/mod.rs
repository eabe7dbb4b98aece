//! SQL Server's files. The work is done by stored procedures (`procedures/`), which serve other languages
//! too; the files beside this one call them. What several procedures share is in `parts/`.

use crate::sql::LATE_COMMITS;
use crate::sql::catalog::{By, Files, Queue, files_with};

#[cfg(test)]
mod check;
#[cfg(test)]
mod pretend;

pub(super) const FILES: Files = files_with!(
    migrations: &[
        (1, "outbox", include_str!("migrations/0001_outbox.sql")),
        (2, "inbox", include_str!("migrations/0002_inbox.sql")),
        (3, "joins", include_str!("migrations/0003_joins.sql")),
        (
            4,
            "operations",
            include_str!("migrations/0004_operations.sql"),
        ),
    ],
    enqueue_many: Some(include_str!("enqueue_many.sql")),
    enqueue_joined: Some(include_str!("enqueue_joined.sql")),
    enqueue_member: None,
    ack_and_enqueue: Some(include_str!("ack_and_enqueue.sql")),
    held: None,
    settle_and_claim: Some(include_str!("settle_and_claim.sql")),
    announce: None,
    held_snapshots: Some(include_str!("held_snapshots.sql")),
    table_growth: None,
    file_state: None,
    fragments: fragments,
    replaceable: &[
        (false, include_str!("procedures/outbox_enqueue.sql")),
        (false, include_str!("procedures/outbox_enqueue_many.sql")),
        (false, include_str!("procedures/outbox_enqueue_once.sql")),
        (false, include_str!("procedures/outbox_enqueue_wait.sql")),
        (true, include_str!("procedures/claim.sql")),
        (true, include_str!("procedures/ack.sql")),
        (true, include_str!("procedures/ack_and_enqueue.sql")),
        (true, include_str!("procedures/fail.sql")),
        (true, include_str!("procedures/abandon.sql")),
        (true, include_str!("procedures/renew.sql")),
        (true, include_str!("procedures/release.sql")),
        (true, include_str!("procedures/settle.sql")),
        (true, include_str!("procedures/reap.sql")),
        (true, include_str!("procedures/replay.sql")),
        (true, include_str!("procedures/purge.sql")),
        (true, include_str!("procedures/cleanup.sql")),
        (false, include_str!("procedures/inbox_ids.sql")),
        (
            false,
            include_str!("procedures/inbox_already_processed.sql"),
        ),
        (false, include_str!("procedures/inbox_enqueue.sql")),
        (false, include_str!("procedures/inbox_mark.sql")),
        (false, include_str!("procedures/inbox_forget.sql")),
        (false, include_str!("procedures/join_attach.sql")),
        (false, include_str!("procedures/join_report.sql")),
        (false, include_str!("procedures/join_reconcile.sql")),
        (false, include_str!("procedures/join_cancel.sql")),
    ],
);

/// A version 7 UUID: it begins with the time, so that ids grow.
const NEW_ID: &str = "CAST(STUFF(CONVERT(char(12), CAST(DATEDIFF_BIG(MILLISECOND, '19700101', SYSUTCDATETIME()) \
     AS binary(6)), 2), 9, 0, '-') + '-7' + SUBSTRING(CAST(NEWID() AS char(36)), 16, 21) AS uniqueidentifier)";

/// That an inbox message arrived is remembered; what it held and how it fared is not.
const FORGET: &str = "UPDATE q SET Topic = NULL, Payload = NULL, Headers = NULL, CorrelationId = NULL, LastError = NULL, \
     DueTimeUtc = NULL, Attempt = 0, DeferralCount = 0, DeliveryCount = 0, LastAttemptAt = NULL, ProcessedAt = NULL, \
     ProcessedBy = NULL";

fn fragments(queue: Queue, by: By) -> Vec<(&'static str, String)> {
    let either = |outbox: &str, inbox: &str| queue.either(outbox, inbox).to_owned();
    let only_outbox = |text: String| queue.only_outbox(text);
    let only_inbox = |text: &str| queue.only_inbox(text);
    let part = |text: &'static str| text.trim_end().to_owned();
    let count_steps = |step: &str, settled: &str, in_join: &str| {
        part(include_str!("parts/count_steps.sql"))
            .replace("{step}", step)
            .replace("{settled}", settled)
            .replace("{in_join}", in_join)
    };
    let in_join = " AND m.JoinId = @JoinId";
    // An argument of a procedure is a parameter or a variable, never an expression.
    let given_ids = |keys: &str| match by {
        By::WorkItem => String::new(),
        By::Key => include_str!("parts/key_ids.sql").replace("{keys}", keys),
    };
    let ids = |given: &str| match by {
        By::WorkItem => given.to_owned(),
        By::Key => "@Ids".to_owned(),
    };
    let parameter = |of_outbox| format!("@P{}", queue.number(of_outbox));
    vec![
        ("{take}", part(include_str!("parts/take.sql"))),
        ("{ack}", part(include_str!("parts/ack.sql"))),
        ("{fail}", part(include_str!("parts/fail.sql"))),
        ("{abandon}", part(include_str!("parts/abandon.sql"))),
        ("{release}", part(include_str!("parts/release.sql"))),
        ("{given}", part(include_str!("parts/given.sql"))),
        // Only what counts steps needs the variables; in the inbox nothing does.
        (
            "{join_variables}",
            only_outbox(part(include_str!("parts/join_variables.sql"))),
        ),
        ("{count_completed}", only_outbox(count_steps("1", "@Settled", ""))),
        ("{count_failed}", only_outbox(count_steps("2", "@Settled", ""))),
        ("{count_purged}", only_outbox(count_steps("2", "@Settled", ""))),
        (
            "{count_settled}",
            only_outbox(format!(
                "{}\n    {}\n    {}\n    INSERT INTO @Result (Operation, Id, CompletedSteps, FailedSteps) \
                 SELECT 'join', JoinId, CompletedSteps, FailedSteps FROM @Finished;",
                part(include_str!("parts/lock_joins.sql")),
                count_steps("1", "@Completed", ""),
                count_steps("2", "@Died", ""),
            )),
        ),
        (
            "{count_reported}",
            count_steps("@Status", "(SELECT @MessageId AS MessageId)", in_join),
        ),
        ("{count_done}", count_steps("1", "@Done", in_join)),
        ("{count_dead}", count_steps("2", "@Dead", in_join)),
        (
            "{finished_rows}",
            only_outbox(
                "\n    UNION ALL\n    SELECT CAST(NULL AS uniqueidentifier), JoinId, Status, CompletedSteps, FailedSteps, \
                 ExpectedSteps\n    FROM @Finished"
                    .to_owned(),
            ),
        ),
        ("{listed_unqueued}", only_inbox(include_str!("parts/listed_unqueued.sql"))),
        ("{counted_unqueued}", only_inbox(include_str!("parts/counted_unqueued.sql"))),
        ("{listed}", part(include_str!("parts/listed.sql"))),
        ("{died}", part(include_str!("parts/died.sql"))),
        (
            "{of_source}",
            only_inbox("\n          AND (@P8 IS NULL OR (q.Source = @P8 AND DATALENGTH(q.Source) = DATALENGTH(@P8)))"),
        ),
        (
            "{died_of_source}",
            only_inbox("\n  AND (@P4 IS NULL OR (q.Source = @P4 AND DATALENGTH(q.Source) = DATALENGTH(@P4)))"),
        ),
        (
            "{then_by}",
            either("q.CreatedAt {direction}", "{first_seen} {direction}, q.KeyHash {direction}"),
        ),
        ("{first_seen}", "DATEDIFF_BIG(MICROSECOND, '19700101', q.FirstSeenUtc)".to_owned()),
        ("{after_key_hash}", key_hash("@P12", "@P13")),
        ("{limit}", parameter(8)),
        ("{matched_after}", ordered(&parameter(4))),
        ("{matched_limit}", parameter(5)),
        (
            "{asked}",
            "EXISTS (SELECT 1 FROM OPENJSON(@P1) AS w WHERE CAST(w.[value] AS int) = {code})".to_owned(),
        ),
        ("{inbox_shown}", shown(Queue::Inbox, &code(Queue::Inbox))),
        ("{shown}", shown(queue, &code(queue))),
        ("{listed_columns}", shown(queue, "q.Code")),
        ("{returned}", returned(queue)),
        ("{code}", code(queue)),
        ("{claimed_columns}", "q.Sequence, q.Status, q.OwnerToken, q.LockedUntil, q.DeliveryCount".to_owned()),
        // While a table is small the optimizer would rather read all of it than look a few rows up, and wait for
        // whatever others have locked there: so these indexes are named.
        ("{claim_index}", either("[IX_{plain queue}_Claim]", "[IX_{plain queue}_WorkQueue]")),
        ("{live_index}", either("[UX_{plain queue}_Live]", "[UX_{plain queue}_Id]")),
        ("{dead_index}", "[IX_{plain queue}_Dead]".to_owned()),
        ("{waiting_index}", "[UX_{plain outbox}_Live]".to_owned()),
        ("{message_index}", "[IX_{plain outbox}_Message]".to_owned()),
        ("{member_index}", "[IX_{plain join_member}_OutboxMessageId]".to_owned()),
        ("{key_index}", "[PK_{plain inbox}]".to_owned()),
        ("{attempts}", attempts(queue).to_owned()),
        ("{created}", created(queue).to_owned()),
        ("{live}", live(queue).to_owned()),
        ("{done}", either("q.Status = 2", "q.Status = 'Done'")),
        ("{inbox_done}", "q.Status = 'Done'".to_owned()),
        // Done, and not only remembered.
        ("{kept}", either("q.Status = 2", "q.Status = 'Done' AND q.ProcessedAt IS NOT NULL")),
        (
            "{not_forgotten}",
            only_inbox("\n       AND (q.Status <> 'Done' OR q.ProcessedAt IS NOT NULL)"),
        ),
        ("{dead}", either("q.Status = 3", "q.Status = 'Dead'")),
        ("{set_done}", either("Status = 2, IsProcessed = 1", "Status = 'Done'")),
        ("{set_dead}", either("Status = 3", "Status = 'Dead'")),
        ("{set_ready}", either("Status = 0,", "")),
        ("{set_in_progress}", either("Status = 1,", "")),
        // A message that was marked dead before it was enqueued is only seen again.
        (
            "{set_revived}",
            either(
                "Status = 0, IsProcessed = 0",
                "Status = CASE WHEN q.Topic IS NULL THEN 'Seen' ELSE 'Processing' END, \
                 Id = CASE WHEN q.Topic IS NULL THEN NULL ELSE q.Id END, BackoffUntil = NULL",
            ),
        ),
        ("{set_backoff}", only_inbox("BackoffUntil = again.Time,")),
        ("{inserted_message}", either("inserted.MessageId", "NULL")),
        ("{deleted_message}", either("deleted.MessageId", "NULL")),
        (
            "{not_live}",
            only_outbox(
                " AND NOT EXISTS (SELECT 1 FROM {outbox} AS live WHERE live.Id = q.Id AND live.Status < 2)".to_owned(),
            ),
        ),
        (
            "{bury}",
            only_outbox(
                "DELETE d FROM @Settled AS s \
                 INNER LOOP JOIN {outbox} AS d WITH (INDEX ([IX_{plain outbox}_Dead]), ROWLOCK) ON d.Id = s.Id \
                 WHERE d.Status = 3 AND d.Sequence <> s.Sequence;"
                    .to_owned(),
            ),
        ),
        (
            "{wake_completed}",
            only_outbox(
                "UPDATE o SET NextAttemptAt = SYSUTCDATETIME() FROM @Settled AS s \
                 INNER LOOP JOIN {join+Wait} AS w ON w.MessageId = s.Id \
                 INNER LOOP JOIN {join} AS j WITH (READPAST, READCOMMITTEDLOCK) ON j.JoinId = w.JoinId \
                 INNER LOOP JOIN {outbox} AS o WITH (ROWLOCK) ON o.Sequence = s.Sequence \
                 WHERE j.Status <> 0 AND o.Status < 2;"
                    .to_owned(),
            ),
        ),
        ("{discard}", either("DELETE q", FORGET)),
        (
            "{forget_content}",
            format!(
                "{} FROM @Settled AS s INNER LOOP JOIN {{queue}} AS q WITH (ROWLOCK) ON q.Sequence = s.Sequence;",
                either("DELETE q", FORGET)
            ),
        ),
        (
            "{hash_differs}",
            "CASE WHEN @Known IS NOT NULL AND @Hash IS NOT NULL \
             AND (@Known <> @Hash OR DATALENGTH(@Known) <> DATALENGTH(@Hash)) THEN 1 ELSE 0 END"
                .to_owned(),
        ),
        ("{key_hash}", key_hash("@Source", "@MessageId")),
        ("{given_key_hash}", key_hash("given.Source", "given.MessageId")),
        ("{new_id}", NEW_ID.to_owned()),
        ("{id_order}", ordered("Id")),
        ("{join_order}", ordered("JoinId")),
        ("{member_order}", ordered("m.OutboxMessageId")),
        ("{wanted_id}", ordered("@P1")),
        ("{second_id}", ordered("@P2")),
        ("{from_id}", ordered("@P6")),
        ("{to_id}", ordered("@P7")),
        ("{due}", since_1970("@DueMicroseconds")),
        ("{enqueued_due}", since_1970("@P7")),
        ("{given_due}", since_1970("CAST(d.[value] AS bigint)")),
        (
            "{claim_from}",
            format!(
                "CASE WHEN {from} < {late} THEN {from} WHEN @P4 IS NOT NULL THEN {late} END",
                from = since_1970("@P4"),
                late = later("SYSUTCDATETIME()", &format!("-{LATE_COMMITS}")),
            ),
        ),
        ("{dead_at}", since_1970("@P3")),
        ("{second_time}", since_1970("@P2")),
        ("{first_ago}", later("SYSUTCDATETIME()", "-@P1")),
        ("{age_ago}", later("SYSUTCDATETIME()", "-@AgeMicroseconds")),
        ("{older}", later("SYSUTCDATETIME()", "-@P4")),
        ("{newer}", later("SYSUTCDATETIME()", "-@P5")),
        ("{lease_end}", later("@Now", "@LeaseMicroseconds")),
        ("{after_backoff}", later("SYSUTCDATETIME()", "backoff.Delay")),
        ("{given_ids}", given_ids("@P2")),
        ("{given_dead_ids}", given_ids("@P1")),
        ("{ids}", ids("@P2")),
        ("{dead_ids}", ids("@P1")),
    ]
}

/// Which messages are not finished: those that have a place in the queue.
fn live(queue: Queue) -> &'static str {
    match queue {
        Queue::Outbox => "q.Status < 2",
        Queue::Inbox => "q.Status = 'Processing' AND q.Id IS NOT NULL",
    }
}

fn attempts(queue: Queue) -> &'static str {
    match queue {
        Queue::Outbox => "RetryCount",
        Queue::Inbox => "Attempt",
    }
}

fn created(queue: Queue) -> &'static str {
    match queue {
        Queue::Outbox => "CreatedAt",
        Queue::Inbox => "FirstSeenUtc",
    }
}

/// Where a message stands, by our own numbers: 0 ready, 1 in flight, 2 done, 3 dead; in the inbox also
/// 4 seen, 5 marked processing.
fn code(queue: Queue) -> String {
    let leased = "WHEN q.LockedUntil >= SYSUTCDATETIME() THEN 1 ELSE 0 END";
    match queue {
        Queue::Outbox => format!("CASE WHEN q.Status > 1 THEN CAST(q.Status AS int) {leased}"),
        Queue::Inbox => format!(
            "CASE WHEN q.Status = 'Seen' THEN 4 WHEN q.Status = 'Done' THEN 2 WHEN q.Status = 'Dead' THEN 3 \
             WHEN q.Id IS NULL THEN 5 {leased}"
        ),
    }
}

/// The columns of a message in the order in which `message.rs` reads them. Times are microseconds since
/// 1970.
fn returned(queue: Queue) -> String {
    let micros =
        |column: &str| format!("DATEDIFF_BIG(MICROSECOND, '19700101', q.{column}) AS {column}");
    let key = match queue {
        Queue::Outbox => "q.Id, q.MessageId",
        Queue::Inbox => "q.Id, q.Source, q.MessageId",
    };
    let seen = match queue {
        Queue::Outbox => String::new(),
        Queue::Inbox => format!(
            ", q.Hash, DATEDIFF_BIG(MICROSECOND, '19700101', q.FirstSeenUtc) AS FirstSeen, {}",
            micros("LastSeenUtc")
        ),
    };
    format!(
        "{key}, q.Topic, q.Payload, q.Headers, q.CorrelationId, {}, {}, \
         CASE WHEN {} THEN DATEDIFF_BIG(MICROSECOND, '19700101', q.NextAttemptAt) END AS NextAttemptAt, {}, q.OwnerToken, \
         q.{}, q.DeferralCount, q.DeliveryCount, {}, q.LastError{seen}",
        micros(created(queue)),
        micros("DueTimeUtc"),
        live(queue),
        micros("LockedUntil"),
        attempts(queue),
        micros("LastAttemptAt"),
    )
}

/// The same, with when and by whom it was processed, and where it stands.
fn shown(queue: Queue, code: &str) -> String {
    format!(
        "{}, DATEDIFF_BIG(MICROSECOND, '19700101', q.ProcessedAt) AS ProcessedAt, q.ProcessedBy, {code} AS Code",
        returned(queue)
    )
}

/// A UUID as bytes in the order in which everybody else sorts them: as SQL Server keeps it, the bytes of its
/// first three groups stand backwards.
fn ordered(id: &str) -> String {
    let byte = |at: u8| format!("SUBSTRING(CAST({id} AS binary(16)), {at}, 1)");
    let first: Vec<String> = [4, 3, 2, 1, 6, 5, 8, 7].map(byte).into();
    format!(
        "CAST({} + SUBSTRING(CAST({id} AS binary(16)), 9, 8) AS binary(16))",
        first.join(" + ")
    )
}

/// The key of an inbox message: trailing blanks and upper case make another one.
fn key_hash(source: &str, message_id: &str) -> String {
    format!(
        "CAST(HASHBYTES('SHA2_256', CAST({source} AS varbinary(1020)) + 0x0000 \
         + CAST({message_id} AS varbinary(1020))) AS binary(32))"
    )
}

/// So many microseconds after a time. A number that is added to a date has 31 bits, so it is done in days,
/// seconds and the rest.
fn later(time: &str, micros: &str) -> String {
    format!(
        "DATEADD(MICROSECOND, ({micros}) % 1000000, DATEADD(SECOND, ({micros}) / 1000000 % 86400, \
         DATEADD(DAY, ({micros}) / CAST(86400000000 AS bigint), {time})))"
    )
}

fn since_1970(micros: &str) -> String {
    later("CAST('19700101' AS datetime2(7))", micros)
}
