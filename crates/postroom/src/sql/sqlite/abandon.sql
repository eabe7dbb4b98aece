-- ?1 owner, ?2 ids, ?3 delays in microseconds or null, ?4 errors, ?5 deferrals (0 or 1), each a JSON
-- array whose last element serves the rest. A null delay is the default backoff,
-- min(2^attempts, 60) seconds with attempts counted after this one (2^6 is beyond the cap).
-- A redelivery may have moved the due time while the message was leased: never before it.
UPDATE {queue} AS q
SET owner_token = NULL,
    locked_from = NULL,
    locked_until = NULL,
    attempt_count = attempt_count + 1,
    deferral_count = deferral_count + json_extract(?5, '$[' || min(settled.n, json_array_length(?5) - 1) || ']'),
    last_attempt_at = {now},
    last_error = coalesce(json_extract(?4, '$[' || min(settled.n, json_array_length(?4) - 1) || ']'), last_error),
    {set_backoff}
    next_attempt_at = max(coalesce(due_time, 0), {now} + coalesce(
        json_extract(?3, '$[' || min(settled.n, json_array_length(?3) - 1) || ']'),
        min(1 << min(attempt_count + 1, 6), 60) * 1000000))
FROM {id_rows} AS settled
WHERE q.id = settled.id AND q.owner_token = ?1
RETURNING id;

{wake_completed}
