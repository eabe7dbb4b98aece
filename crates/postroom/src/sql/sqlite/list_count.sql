-- How many messages a list is about: ?1 to ?7 and the inbox's ?8 as in list.sql, without a limit.
SELECT
    (SELECT count(*)
     FROM {queue}
     WHERE {listed}
       AND CASE WHEN locked_until >= {now} AND locked_from <= {now} THEN 1 ELSE 0 END
           IN (SELECT value FROM json_each(?1)))
    + (SELECT count(*) FROM {queue+_done} WHERE 2 IN (SELECT value FROM json_each(?1)) AND {listed})
    + (SELECT count(*) FROM {queue+_dead} WHERE 3 IN (SELECT value FROM json_each(?1)) AND {listed})
    {counted_seen}
