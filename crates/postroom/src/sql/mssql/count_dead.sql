-- How many dead messages match: @P1 topic, @P2 correlation id, each or NULL; dead at @P3, in microseconds
-- since 1970; inbox only: @P4 source or NULL. The same condition as in match_dead.sql.
SELECT COUNT_BIG(*) AS Dead
FROM {queue} AS q
WHERE {died}
OPTION (RECOMPILE)
