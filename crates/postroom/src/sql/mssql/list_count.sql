-- How many messages a list is about: @P1 to @P7 and the inbox's @P8 as in list.sql, without a limit.
SELECT
    (SELECT COUNT_BIG(*)
     FROM {queue} AS q
     WHERE {asked}
       AND {listed}{not_forgotten})
    {counted_unqueued} AS Messages
OPTION (RECOMPILE)
