(?1 IS NULL OR topic = ?1)
  AND (?2 IS NULL OR correlation_id = ?2)
  AND processed_at <= ?3{died_of_source}
