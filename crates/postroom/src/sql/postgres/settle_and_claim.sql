-- One round trip of a dispatcher: settles a mixed batch ($5 to $18, as the settle function takes them)
-- and claims the next ($1 owner, $2 lease, $3 batch, 0 for none, $4 where to look first).
-- The first rows tell what was settled; in them the columns of a message are NULL. The branches of a
-- UNION ALL run in order, so a message that is settled to be ready at once can be claimed right away.
SELECT s.operation, s.ids, s.completed_steps, s.failed_steps, {returned}
FROM {queue+_settle}(
    $5::text, $6::bigint <> 0,
    $7::uuid[], $8::uuid[],
    $9::uuid[], $10::uuid[], $11::text[],
    $12::uuid[], $13::uuid[], $14::bigint[], $15::text[], $16::bigint[],
    $17::uuid[], $18::uuid[]) AS s
LEFT JOIN {queue} AS q ON false
{with_seen}
UNION ALL
SELECT NULL, NULL, NULL, NULL, {returned}
FROM {queue+_claim}(
    $1::uuid,
    $2::bigint * interval '1 microsecond',
    $3::bigint::integer,
    coalesce('epoch'::timestamptz + $4::bigint * interval '1 microsecond', '-infinity')) AS q
{with_seen}
