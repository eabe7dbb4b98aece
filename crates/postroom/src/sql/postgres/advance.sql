-- Lets $1 microseconds pass for everything in the store, by moving all of its times into the past. For
-- tests only: see testing.rs. Every time column of every table must be here.
WITH passed AS (
    SELECT $1::bigint * interval '1 microsecond' AS time
), moved_outbox AS (
    UPDATE {outbox}
    SET created_at = created_at - passed.time,
        next_attempt_at = next_attempt_at - passed.time,
        due_time = due_time - passed.time,
        locked_until = locked_until - passed.time,
        last_attempt_at = last_attempt_at - passed.time
    FROM passed
), moved_outbox_done AS (
    UPDATE {outbox+_done}
    SET created_at = created_at - passed.time,
        due_time = due_time - passed.time,
        last_attempt_at = last_attempt_at - passed.time,
        processed_at = processed_at - passed.time
    FROM passed
), moved_outbox_dead AS (
    UPDATE {outbox+_dead}
    SET created_at = created_at - passed.time,
        due_time = due_time - passed.time,
        last_attempt_at = last_attempt_at - passed.time,
        processed_at = processed_at - passed.time
    FROM passed
), moved_inbox_seen AS (
    UPDATE {inbox+_seen}
    SET first_seen = first_seen - passed.time,
        last_seen = last_seen - passed.time
    FROM passed
), moved_inbox AS (
    UPDATE {inbox}
    SET created_at = created_at - passed.time,
        next_attempt_at = next_attempt_at - passed.time,
        due_time = due_time - passed.time,
        backoff_until = backoff_until - passed.time,
        locked_until = locked_until - passed.time,
        last_attempt_at = last_attempt_at - passed.time
    FROM passed
), moved_inbox_done AS (
    UPDATE {inbox+_done}
    SET created_at = created_at - passed.time,
        due_time = due_time - passed.time,
        last_attempt_at = last_attempt_at - passed.time,
        processed_at = processed_at - passed.time
    FROM passed
), moved_inbox_dead AS (
    UPDATE {inbox+_dead}
    SET created_at = created_at - passed.time,
        due_time = due_time - passed.time,
        last_attempt_at = last_attempt_at - passed.time,
        processed_at = processed_at - passed.time
    FROM passed
), moved_join AS (
    UPDATE {join}
    SET created_at = created_at - passed.time,
        last_updated_at = last_updated_at - passed.time
    FROM passed
), moved_join_member AS (
    UPDATE {join_member}
    SET created_at = created_at - passed.time
    FROM passed
), moved_outbox_key AS (
    UPDATE {outbox+_key}
    SET created_at = created_at - passed.time
    FROM passed
), moved_outbox_audit AS (
    UPDATE {outbox+_audit}
    SET recorded_at = recorded_at - passed.time
    FROM passed
)
SELECT 1::bigint
