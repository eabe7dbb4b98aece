-- One message under the key $1, with the hash $2. $9 is the due time in microseconds since 1970, or
-- NULL; $10 the joins. Returns work item, message, and 0 new, 1 there before, 2 there with another hash.
SELECT work_item, message, outcome
FROM {outbox+_enqueue_once}(
    $1::text, $2::bytea, $3::uuid, $4::uuid, $5::text, $6::text, $7::text, $8::text,
    'epoch'::timestamptz + $9::bigint * interval '1 microsecond', $10::uuid[])
