-- How many messages a list is about: $1 to $7 and the inbox's $8 as in list.sql, without a limit.
SELECT
    (SELECT count(*)
     FROM {queue}
     WHERE {listed}
       AND CASE WHEN locked_until >= statement_timestamp() THEN 1 ELSE 0 END = ANY ($1::bigint[]))
    + (SELECT count(*)
       FROM {queue+_done}
       WHERE 2 = ANY ($1::bigint[])
         AND {listed}
         AND processed_at > coalesce(statement_timestamp() - $5::bigint * interval '1 microsecond', '-infinity'))
    + (SELECT count(*) FROM {queue+_dead} WHERE 3 = ANY ($1::bigint[]) AND {listed})
    {counted_seen}
