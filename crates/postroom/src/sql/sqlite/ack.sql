-- ?1 owner, ?2 ids as JSON, ?3 worker, ?4 whether to keep the messages in the archive (0 or 1).
-- Returns one row per message that really changed (id set) and one per join that moved (join_id
-- set).
INSERT INTO {queue+_done} ({columns}, processed_at, processed_by)
SELECT {columns}, {now}, ?3
FROM {queue}
WHERE ?4 <> 0 AND owner_token = ?1 AND id IN {ids};

{count_completed}

DELETE FROM {queue}
WHERE owner_token = ?1 AND id IN {ids}
RETURNING id, NULL, NULL, NULL, NULL, NULL
