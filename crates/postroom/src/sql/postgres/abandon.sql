-- $1 owner, $2 ids, $3 delays in microseconds or NULL, $4 errors, $5 deferrals (0 or 1).
SELECT id
FROM {queue+_abandon}(
    $1::uuid,
    {ids},
    ARRAY(SELECT d * interval '1 microsecond' FROM unnest($3::bigint[]) WITH ORDINALITY AS u (d, n) ORDER BY n),
    $4::text[],
    ARRAY(SELECT d <> 0 FROM unnest($5::bigint[]) WITH ORDINALITY AS u (d, n) ORDER BY n)) AS released (id)
