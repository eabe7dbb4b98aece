-- Makes the dead messages among @Ids, a JSON array, ready again, with a fresh budget of attempts, unless the
-- same id has been enqueued anew and is live. Returns the ids that changed.
IF OBJECT_ID(N'{queue+_Replay}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {queue+_Replay} AS RETURN 0');
GO
ALTER PROCEDURE {queue+_Replay}
    @Ids nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    {given}
    INSERT INTO @Given (Id, OwnerToken)
    SELECT CAST(i.[value] AS uniqueidentifier), '00000000-0000-0000-0000-000000000000' FROM OPENJSON(@Ids) AS i;
    UPDATE q
    SET {set_revived},
        {attempts} = 0,
        DeferralCount = 0,
        DeliveryCount = 0,
        ProcessedAt = NULL,
        ProcessedBy = NULL,
        NextAttemptAt = CASE WHEN q.DueTimeUtc > SYSUTCDATETIME() THEN q.DueTimeUtc ELSE SYSUTCDATETIME() END
    OUTPUT inserted.Sequence, deleted.Id INTO @Settled (Sequence, Id)
    FROM @Given AS s
    INNER LOOP JOIN {queue} AS q WITH (INDEX ({dead_index}), ROWLOCK) ON q.Id = s.Id
    WHERE {dead}{not_live};
    SET NOCOUNT OFF;
    SELECT Id FROM @Settled;
END;
GO
