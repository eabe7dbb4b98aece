-- $1 owner, $2 lease in microseconds, $3 batch, $4 where to look first, in microseconds, or NULL,
-- $5 whether to look everywhere else too (0 or 1).
SELECT {returned}, q.place, {version} AS version
FROM {queue+_claim}(
    $1::uuid,
    $2::bigint * interval '1 microsecond',
    $3::bigint::integer,
    {claim_from},
    $5::bigint <> 0) AS q
{with_seen}
