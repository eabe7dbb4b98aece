-- Forgets keys older than ?1 microseconds, or made before ?2 (microseconds since 1970), at most ?3,
-- unless their message is unfinished or dead. The last row is the count.
SELECT JSON_ARRAYAGG(HEX(c.`key`)) INTO @postroom_chosen
FROM (
    SELECT k.`key`
    FROM {outbox+_key} AS k FORCE INDEX ({name outbox+_key_time})
    WHERE k.created_at < COALESCE(?2, {now} - ?1)
      AND NOT EXISTS (SELECT 1 FROM {outbox} AS q WHERE q.id = k.id)
      AND NOT EXISTS (SELECT 1 FROM {outbox+_dead} AS d WHERE d.id = k.id)
    ORDER BY k.created_at
    LIMIT ?3) AS c;

DELETE k
FROM JSON_TABLE(@postroom_chosen, '$[*]' COLUMNS (`key` VARCHAR(2040) PATH '$')) AS c
STRAIGHT_JOIN {outbox+_key} AS k FORCE INDEX (PRIMARY) ON k.`key` = UNHEX(c.`key`);

SELECT ROW_COUNT()
