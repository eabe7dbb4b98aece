-- ?1 owner, ?2 ids as JSON, ?3 errors as JSON (the last one serves the rest), ?4 worker.
-- Returns as ack does. An id that died before and was enqueued again dies again: the later death
-- counts.
INSERT OR REPLACE INTO {queue+_dead} ({columns}, processed_at, processed_by)
SELECT {columns_with_error}, {now}, ?4
FROM (
    SELECT q.*, json_extract(?3, '$[' || min(settled.n, json_array_length(?3) - 1) || ']') AS error
    FROM {id_rows} AS settled
    JOIN {queue} AS q ON q.id = settled.id
    WHERE q.owner_token = ?1);

{count_failed}

DELETE FROM {queue}
WHERE owner_token = ?1 AND id IN {ids}
RETURNING id, NULL, NULL, NULL, NULL, NULL
