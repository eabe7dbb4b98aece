-- How many dead messages match: ?1 topic, ?2 correlation id, each or NULL; dead at ?3, in microseconds
-- since 1970; inbox only: ?4 source or NULL. The same condition as in match_dead.sql.
SELECT COUNT(*)
FROM {queue+_dead}
WHERE {died}
