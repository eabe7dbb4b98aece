-- @P1 join id.
SELECT j.JoinId, j.GroupingKey, j.ExpectedSteps, j.CompletedSteps, j.FailedSteps, j.Status,
       DATEDIFF_BIG(MICROSECOND, '19700101', j.CreatedUtc) AS CreatedUtc, DATEDIFF_BIG(MICROSECOND, '19700101', j.LastUpdatedUtc) AS LastUpdatedUtc, j.Metadata
FROM {join} AS j
WHERE j.JoinId = @P1
