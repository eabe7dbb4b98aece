-- ?1 owner, ?2 ids as JSON, none of them twice, ?3 worker, ?4 whether to keep the messages in the archive (0 or 1).
-- Returns one row per message that really changed (id set) and one per join that this call finished
-- (join_id set). The rows are locked first: an INSERT from a SELECT locks nothing by itself here.
{resolve}SELECT q.id, NULL, NULL, NULL, NULL, NULL
FROM {held}
FOR UPDATE;

INSERT INTO {queue+_done} ({columns}, processed_at, processed_by)
SELECT {held_columns}, {now}, CONVERT(CAST(?3 AS BINARY) USING utf8mb4)
FROM {held} AND ?4 <> 0;

{count_completed}

DELETE q
FROM {held}
