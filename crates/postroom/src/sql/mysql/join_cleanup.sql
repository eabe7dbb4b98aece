-- Finished joins last updated longer than ?1 microseconds ago, at most ?2; members go with them, by
-- their foreign keys. A join that a message still waits for stays, and so does one that somebody is
-- enqueuing a step of: he has locked its key.
SELECT JSON_ARRAYAGG(HEX(c.join_id)) INTO @postroom_chosen
FROM (
    SELECT j.join_id
    FROM {join} AS j
    STRAIGHT_JOIN {join+_key} AS k FORCE INDEX (PRIMARY) ON k.join_id = j.join_id
    WHERE j.status <> 0
      AND j.last_updated_at < {now} - ?1
      AND NOT EXISTS (
          SELECT 1 FROM {join+_wait} AS w JOIN {outbox} AS o ON o.id = w.message_id
          WHERE w.join_id = j.join_id)
    LIMIT ?2
    FOR UPDATE SKIP LOCKED) AS c;

DELETE j
FROM {chosen} AS c
STRAIGHT_JOIN {join} AS j FORCE INDEX (PRIMARY) ON j.join_id = UNHEX(c.id);

SELECT ROW_COUNT()
