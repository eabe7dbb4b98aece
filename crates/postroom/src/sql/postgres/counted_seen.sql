+ (SELECT count(*)
       FROM {inbox+_seen}
       WHERE state IN (0, 1, 3)
         AND CASE state WHEN 0 THEN 4 WHEN 1 THEN 5 ELSE 2 END = ANY ($1::bigint[])
         AND $2::text IS NULL
         AND $3::text IS NULL
         AND first_seen <= coalesce(statement_timestamp() - $4::bigint * interval '1 microsecond', 'infinity')
         AND first_seen > coalesce(statement_timestamp() - $5::bigint * interval '1 microsecond', '-infinity'){of_source})
