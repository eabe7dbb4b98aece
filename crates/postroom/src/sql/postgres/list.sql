-- One page of messages, in the order of their ids. $1 statuses; $2 topic, $3 correlation id, $4 enqueued
-- at least so many microseconds ago, $5 less than so many, each or NULL; ids from $6 to $7; inbox only:
-- $8 source or NULL; then the limit; inbox only: $10 whether to include those that were never enqueued,
-- and after which of them, or NULL: $11 first seen, $12 source, $13 message id.
--
-- Each table is asked for a page of its own, so that live and dead messages come by their keys and are
-- not sorted. The archive, which knows ids only by a BRIN index, is asked through a function.
SELECT {shown}
FROM (
    (SELECT {columns}, next_attempt_at, locked_until, owner_token,
            CASE WHEN locked_until >= statement_timestamp() THEN 1 ELSE 0 END AS status,
            NULL::timestamptz AS processed_at, NULL::text AS processed_by
     FROM {queue}
     WHERE {listed}
       AND CASE WHEN locked_until >= statement_timestamp() THEN 1 ELSE 0 END = ANY ($1::bigint[])
     ORDER BY id {direction}
     LIMIT {limit})
    UNION ALL
    (SELECT {columns}, NULL, NULL, NULL, 2, processed_at, processed_by
     FROM {queue+_archive}(
         $6::uuid, $7::uuid, '{direction}' = 'DESC', {limit}, $2::text, $3::text,
         statement_timestamp() - $4::bigint * interval '1 microsecond',
         statement_timestamp() - $5::bigint * interval '1 microsecond'{and_source})
     WHERE 2 = ANY ($1::bigint[]))
    UNION ALL
    (SELECT {columns}, NULL, NULL, NULL, 3, processed_at, processed_by
     FROM {queue+_dead}
     WHERE 3 = ANY ($1::bigint[])
       AND {listed}
     ORDER BY id {direction}
     LIMIT {limit})
    {listed_seen}) AS q
{with_seen}
ORDER BY q.id {direction_and_nulls}, q.created_at {direction}{then_by_key}
LIMIT {limit}
