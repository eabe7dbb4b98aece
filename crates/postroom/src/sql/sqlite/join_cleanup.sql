-- Finished joins last updated longer than ?1 microseconds ago, at most ?2; members go with them.
DELETE FROM {join_member}
WHERE join_id IN {doomed_joins};

DELETE FROM {join+_wait}
WHERE join_id IN {doomed_joins};

DELETE FROM {join}
WHERE join_id IN {doomed_joins};

SELECT changes()
