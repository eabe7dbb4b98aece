d.id BETWEEN p_from AND p_to
          AND (p_topic IS NULL OR d.topic = p_topic COLLATE "C")
          AND (p_correlation_id IS NULL OR d.correlation_id = p_correlation_id COLLATE "C")
          AND d.created_at <= coalesce(p_older, 'infinity')
          AND d.created_at > coalesce(p_newer, '-infinity')
          -- What was enqueued lately cannot have been done before: older days are left out.
          AND d.processed_at > coalesce(p_newer, '-infinity'){archived_of_source}
