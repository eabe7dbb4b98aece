(?2 IS NULL OR topic = ?2)
       AND (?3 IS NULL OR correlation_id = ?3)
       AND (?4 IS NULL OR created_at <= {now} - ?4)
       AND (?5 IS NULL OR created_at > {now} - ?5)
       AND id BETWEEN ?6 AND ?7{of_source}
