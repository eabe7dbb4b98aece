-- ?1 ids of dead messages as JSON, or NULL for those that died longer than ?2 microseconds ago,
-- at most ?3, oldest first.
{forget_seen}

DELETE FROM {queue+_dead}
WHERE id IN {doomed_ids};

SELECT changes()
