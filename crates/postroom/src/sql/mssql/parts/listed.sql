(@P2 IS NULL OR (q.Topic = @P2 AND DATALENGTH(q.Topic) = DATALENGTH(@P2)))
          AND (@P3 IS NULL OR (q.CorrelationId = @P3 AND DATALENGTH(q.CorrelationId) = DATALENGTH(@P3)))
          AND (@P4 IS NULL OR q.{created} <= {older})
          AND (@P5 IS NULL OR q.{created} > {newer})
          AND q.IdOrder BETWEEN {from_id} AND {to_id}{of_source}
