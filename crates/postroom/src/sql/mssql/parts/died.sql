{dead}
  AND (@P1 IS NULL OR (q.Topic = @P1 AND DATALENGTH(q.Topic) = DATALENGTH(@P1)))
  AND (@P2 IS NULL OR (q.CorrelationId = @P2 AND DATALENGTH(q.CorrelationId) = DATALENGTH(@P2)))
  AND q.ProcessedAt <= {dead_at}{died_of_source}
