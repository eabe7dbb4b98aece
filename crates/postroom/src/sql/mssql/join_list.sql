-- @P1 grouping key, @P2 list what follows this join id or NULL, @P3 at most so many.
SELECT TOP (@P3) j.JoinId, j.GroupingKey, j.ExpectedSteps, j.CompletedSteps, j.FailedSteps, j.Status,
       DATEDIFF_BIG(MICROSECOND, '19700101', j.CreatedUtc) AS CreatedUtc, DATEDIFF_BIG(MICROSECOND, '19700101', j.LastUpdatedUtc) AS LastUpdatedUtc, j.Metadata
FROM {join} AS j
WHERE j.GroupingKey = @P1
  AND DATALENGTH(j.GroupingKey) = DATALENGTH(@P1)
  AND (@P2 IS NULL OR j.JoinOrder > {second_id})
ORDER BY j.JoinOrder
