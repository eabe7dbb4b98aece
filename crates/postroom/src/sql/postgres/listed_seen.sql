UNION ALL
    (SELECT NULL::uuid, source, message_id, first_seen, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
            NULL, CASE state WHEN 0 THEN 4 WHEN 1 THEN 5 ELSE 2 END, NULL, NULL
     FROM {inbox+_seen}
     WHERE $10::bigint = 1
       AND state IN (0, 1, 3)
       AND CASE state WHEN 0 THEN 4 WHEN 1 THEN 5 ELSE 2 END = ANY ($1::bigint[])
       AND $2::text IS NULL
       AND $3::text IS NULL
       AND first_seen <= coalesce(statement_timestamp() - $4::bigint * interval '1 microsecond', 'infinity')
       AND first_seen > coalesce(statement_timestamp() - $5::bigint * interval '1 microsecond', '-infinity'){of_source}
       AND ($11::bigint IS NULL OR (first_seen, source, message_id)
            {beyond} ('epoch'::timestamptz + $11::bigint * interval '1 microsecond', $12::text COLLATE "C", $13::text COLLATE "C"))
     ORDER BY first_seen {direction}, source {direction}, message_id {direction}
     LIMIT {limit})
