-- One round trip of a dispatcher: settles a mixed batch ($6 to $22, as the settle function takes them; $20 to
-- $22 tell where the acked ones lie) and claims the next ($1 to $5, as claim takes them; a batch of 0 claims
-- nothing).
-- The first rows tell what was settled; in them the columns of a message are NULL. The branches of a
-- UNION ALL run in order, so a message that is settled to be ready at once can be claimed right away.
SELECT s.operation, s.ids, s.completed_steps, s.failed_steps, {returned}, NULL::tid, NULL::bigint
FROM {queue+_settle}(
    $6::text, $7::bigint <> 0,
    $8::uuid[], $9::uuid[], $20::text::tid[], $21::bigint[], $22::bigint[],
    $10::uuid[], $11::uuid[], $12::text[],
    $13::uuid[], $14::uuid[], $15::bigint[], $16::text[], $17::bigint[],
    $18::uuid[], $19::uuid[]) AS s
LEFT JOIN {queue} AS q ON false
{with_seen}
UNION ALL
SELECT NULL, NULL, NULL, NULL, {returned}, q.place, {version}
FROM {queue+_claim}(
    $1::uuid,
    $2::bigint * interval '1 microsecond',
    $3::bigint::integer,
    {claim_from},
    $5::bigint <> 0) AS q
{with_seen}
