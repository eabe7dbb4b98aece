-- ?1 owner, ?2 ids, ?3 delays in microseconds or null, ?4 errors, ?5 deferrals (0 or 1), each a JSON
-- array whose last element serves the rest. A null delay is the default backoff,
-- min(2^attempts, 60) seconds with attempts counted after this one (2^6 is beyond the cap).
-- A redelivery may have moved the due time while the message was leased: never before it.
-- What is assigned comes from a table of its own: the order of assignments is nobody's promise.
{resolve}SELECT q.id
FROM {held}
FOR UPDATE;

UPDATE (
    SELECT q.id, q.attempt_count + 1 AS attempts, e.error, f.deferred,
           COALESCE(d.delay, LEAST(CAST(1 << LEAST(q.attempt_count + 1, 6) AS SIGNED), 60) * 1000000) AS delay
    FROM {id_rows} AS s
    STRAIGHT_JOIN JSON_TABLE(?3, '$[*]' COLUMNS (n FOR ORDINALITY, delay BIGINT PATH '$')) AS d ON d.n = LEAST(s.n, JSON_LENGTH(?3))
    STRAIGHT_JOIN JSON_TABLE(?4, '$[*]' COLUMNS (n FOR ORDINALITY, error TEXT CHARACTER SET utf8mb4 PATH '$')) AS e ON e.n = LEAST(s.n, JSON_LENGTH(?4))
    STRAIGHT_JOIN JSON_TABLE(?5, '$[*]' COLUMNS (n FOR ORDINALITY, deferred INT PATH '$')) AS f ON f.n = LEAST(s.n, JSON_LENGTH(?5))
    STRAIGHT_JOIN {queue} AS q FORCE INDEX (PRIMARY) ON q.id = s.id
    WHERE q.owner_token = ?1
    LIMIT 1000000) AS settled
STRAIGHT_JOIN {queue} AS q FORCE INDEX (PRIMARY) ON q.id = settled.id
SET q.owner_token = NULL,
    q.locked_until = NULL,
    q.attempt_count = settled.attempts,
    q.deferral_count = q.deferral_count + settled.deferred,
    q.last_attempt_at = {now},
    q.last_error = COALESCE(settled.error, q.last_error),
    {set_backoff}
    q.next_attempt_at = GREATEST(COALESCE(q.due_time, 0), {now} + settled.delay);

{wake_completed}
