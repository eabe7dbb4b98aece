-- ?1 ids of dead messages as JSON, or NULL for those that died longer than ?2 microseconds ago,
-- at most ?3, oldest first. Members that are still pending although their message is dead are counted
-- first, so that no join waits for a row that is gone. Only the last row is the count.
{count_purged}

{forget_seen}

DELETE FROM {queue+_dead}
WHERE id IN {doomed_ids};

SELECT changes();

{forget_marked}
