-- How many messages a list is about: ?1 to ?7 and the inbox's ?8 as in list.sql, without a limit.
SELECT
    (SELECT COUNT(*)
     FROM {queue}
     WHERE {listed}
       AND JSON_CONTAINS(?1, IF(locked_until >= {now}, '1', '0')))
    + (SELECT COUNT(*) FROM {queue+_done} WHERE JSON_CONTAINS(?1, '2') AND {listed})
    + (SELECT COUNT(*) FROM {queue+_dead} WHERE JSON_CONTAINS(?1, '3') AND {listed})
    {counted_seen}
