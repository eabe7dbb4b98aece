CASE WHEN $4::bigint IS NULL THEN '-infinity'
         ELSE least(
             'epoch'::timestamptz + $4::bigint * interval '1 microsecond',
             statement_timestamp() - {late_commits} * interval '1 microsecond')
         END
