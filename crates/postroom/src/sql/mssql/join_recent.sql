-- @P1 list what was started before this join id or NULL, @P2 at most so many. Newest first.
SELECT TOP (@P2) j.JoinId, j.GroupingKey, j.ExpectedSteps, j.CompletedSteps, j.FailedSteps, j.Status,
       DATEDIFF_BIG(MICROSECOND, '19700101', j.CreatedUtc) AS CreatedUtc, DATEDIFF_BIG(MICROSECOND, '19700101', j.LastUpdatedUtc) AS LastUpdatedUtc, j.Metadata
FROM {join} AS j
WHERE @P1 IS NULL OR j.JoinOrder < {wanted_id}
ORDER BY j.JoinOrder DESC
OPTION (RECOMPILE)
