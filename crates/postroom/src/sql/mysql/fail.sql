-- ?1 owner, ?2 ids as JSON, ?3 errors as JSON (the last one serves the rest), ?4 worker.
-- Returns and locks as ack does. An id that died before and was enqueued again dies again: the later
-- death counts.
{resolve}SELECT q.id, NULL, NULL, NULL, NULL, NULL
FROM {held}
FOR UPDATE;

REPLACE INTO {queue+_dead} ({columns}, processed_at, processed_by)
SELECT {held_columns_with_error}, {now}, ?4
FROM {id_rows} AS s
STRAIGHT_JOIN JSON_TABLE(?3, '$[*]' COLUMNS (n FOR ORDINALITY, error TEXT CHARACTER SET utf8mb4 PATH '$')) AS e ON e.n = LEAST(s.n, JSON_LENGTH(?3))
STRAIGHT_JOIN {queue} AS q FORCE INDEX (PRIMARY) ON q.id = s.id
WHERE q.owner_token = ?1;

{count_failed}

DELETE q
FROM {held}
