($1::text IS NULL OR topic = $1::text COLLATE "C")
  AND ($2::text IS NULL OR correlation_id = $2::text COLLATE "C")
  AND processed_at <= 'epoch'::timestamptz + $3::bigint * interval '1 microsecond'{died_of_source}
