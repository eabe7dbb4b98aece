($2::text IS NULL OR topic = $2::text COLLATE "C")
       AND ($3::text IS NULL OR correlation_id = $3::text COLLATE "C")
       AND created_at <= coalesce(statement_timestamp() - $4::bigint * interval '1 microsecond', 'infinity')
       AND created_at > coalesce(statement_timestamp() - $5::bigint * interval '1 microsecond', '-infinity')
       AND id BETWEEN $6::uuid AND $7::uuid{of_source}
