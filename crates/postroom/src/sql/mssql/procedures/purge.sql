-- Deletes dead messages for good: those among @Ids, a JSON array, or with @Ids NULL up to @BatchSize of those
-- that died at least @AgeMicroseconds ago, oldest first. Returns how many. Members that are still pending
-- although their message is dead are counted, so that no join waits for a row that is gone.
IF OBJECT_ID(N'{queue+_Purge}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {queue+_Purge} AS RETURN 0');
GO
ALTER PROCEDURE {queue+_Purge}
    @Ids nvarchar(max),
    @AgeMicroseconds bigint,
    @BatchSize bigint
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    {given}
    {join_variables}
    IF @Ids IS NULL
        INSERT INTO @Given (Id, OwnerToken)
        SELECT TOP (@BatchSize) q.Id, '00000000-0000-0000-0000-000000000000'
        FROM {queue} AS q
        WHERE {dead} AND q.ProcessedAt <= {age_ago}
        ORDER BY q.ProcessedAt;
    ELSE
        INSERT INTO @Given (Id, OwnerToken)
        SELECT CAST(i.[value] AS uniqueidentifier), '00000000-0000-0000-0000-000000000000' FROM OPENJSON(@Ids) AS i;
    BEGIN TRANSACTION;
    DELETE q
    OUTPUT deleted.Sequence, deleted.Id, {deleted_message} INTO @Settled (Sequence, Id, MessageId)
    FROM @Given AS s
    INNER LOOP JOIN {queue} AS q WITH (INDEX ({dead_index}), ROWLOCK) ON q.Id = s.Id
    WHERE {dead};
    {count_purged}
    COMMIT TRANSACTION;
    SELECT COUNT_BIG(*) AS Purged FROM @Settled;
END;
GO
