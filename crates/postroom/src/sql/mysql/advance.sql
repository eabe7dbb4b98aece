-- Lets ?1 microseconds pass for everything in the store, by moving all of its times into the past. For
-- tests only: see testing.rs. Every time column of every table must be here.
UPDATE {outbox}
SET created_at = created_at - ?1,
    next_attempt_at = next_attempt_at - ?1,
    due_time = due_time - ?1,
    locked_until = locked_until - ?1,
    last_attempt_at = last_attempt_at - ?1;

UPDATE {outbox+_done}
SET created_at = created_at - ?1,
    due_time = due_time - ?1,
    last_attempt_at = last_attempt_at - ?1,
    processed_at = processed_at - ?1;

UPDATE {outbox+_dead}
SET created_at = created_at - ?1,
    due_time = due_time - ?1,
    last_attempt_at = last_attempt_at - ?1,
    processed_at = processed_at - ?1;

UPDATE {inbox+_seen}
SET first_seen = first_seen - ?1,
    last_seen = last_seen - ?1;

UPDATE {inbox}
SET created_at = created_at - ?1,
    next_attempt_at = next_attempt_at - ?1,
    due_time = due_time - ?1,
    backoff_until = backoff_until - ?1,
    locked_until = locked_until - ?1,
    last_attempt_at = last_attempt_at - ?1;

UPDATE {inbox+_done}
SET created_at = created_at - ?1,
    due_time = due_time - ?1,
    last_attempt_at = last_attempt_at - ?1,
    processed_at = processed_at - ?1;

UPDATE {inbox+_dead}
SET created_at = created_at - ?1,
    due_time = due_time - ?1,
    last_attempt_at = last_attempt_at - ?1,
    processed_at = processed_at - ?1;

UPDATE {join}
SET created_at = created_at - ?1,
    last_updated_at = last_updated_at - ?1;

UPDATE {join_member}
SET created_at = created_at - ?1;

UPDATE {outbox+_key}
SET created_at = created_at - ?1;

UPDATE {outbox+_audit}
SET recorded_at = recorded_at - ?1;
