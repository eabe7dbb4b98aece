-- Gives the pending members among the settled messages the status {step} (1 completed, 2 failed), and moves
    -- the counters of their joins by exactly those, never beyond the expected steps. Joins that this finishes
    -- are in @Finished then, and their wait messages are ready.
    -- Locks: members, then joins in the order of @Steps, then wait messages.
    DELETE FROM @Counted;
    DELETE FROM @Steps;
    UPDATE m
    SET Status = {step}
    OUTPUT inserted.JoinId INTO @Counted (JoinId)
    FROM (SELECT DISTINCT settled.MessageId FROM {settled} AS settled) AS s
    INNER LOOP JOIN {join_member} AS m WITH (INDEX ({member_index}), ROWLOCK) ON m.OutboxMessageId = s.MessageId
    WHERE m.Status = 0{in_join};
    IF @@ROWCOUNT > 0
    BEGIN
        INSERT INTO @Steps (JoinId, Steps)
        SELECT JoinId, COUNT(*) FROM @Counted GROUP BY JoinId;
        UPDATE j
        SET CompletedSteps = j.CompletedSteps + CASE WHEN {step} = 1 THEN counted.Steps ELSE 0 END,
            FailedSteps = j.FailedSteps + CASE WHEN {step} = 2 THEN counted.Steps ELSE 0 END,
            Status = CASE
                WHEN j.CompletedSteps + j.FailedSteps + counted.Steps < j.ExpectedSteps THEN 0
                WHEN j.FailedSteps > 0 OR {step} = 2 THEN 2
                ELSE 1 END,
            LastUpdatedUtc = SYSUTCDATETIME()
        OUTPUT inserted.JoinId, inserted.Status, inserted.CompletedSteps, inserted.FailedSteps, inserted.ExpectedSteps
            INTO @Moved (JoinId, Status, CompletedSteps, FailedSteps, ExpectedSteps)
        FROM @Steps AS s
        INNER LOOP JOIN {join} AS j WITH (ROWLOCK) ON j.JoinId = s.JoinId
        CROSS APPLY (
            SELECT CASE
                WHEN s.Steps < j.ExpectedSteps - j.CompletedSteps - j.FailedSteps THEN s.Steps
                ELSE j.ExpectedSteps - j.CompletedSteps - j.FailedSteps END AS Steps) AS counted
        WHERE j.Status = 0;
        INSERT INTO @Finished (JoinId, Status, CompletedSteps, FailedSteps, ExpectedSteps)
        SELECT JoinId, Status, CompletedSteps, FailedSteps, ExpectedSteps FROM @Moved WHERE Status <> 0;
        DELETE FROM @Moved;
        UPDATE o
        SET NextAttemptAt = SYSUTCDATETIME()
        FROM @Finished AS f
        INNER LOOP JOIN {join+Wait} AS w ON w.JoinId = f.JoinId
        INNER LOOP JOIN {outbox} AS o WITH (INDEX ({waiting_index}), ROWLOCK) ON o.Id = w.MessageId
        WHERE o.Status < 2;
    END;
