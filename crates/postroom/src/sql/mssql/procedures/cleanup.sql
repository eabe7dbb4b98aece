-- Removes done messages that were processed before @Before, up to @BatchSize, oldest first. Returns how many.
-- Of an inbox message only the content goes: that it arrived is remembered until it is forgotten. Members that
-- are still pending although their message is done are counted, so that no join waits for a row that is gone.
IF OBJECT_ID(N'{queue+_Cleanup}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {queue+_Cleanup} AS RETURN 0');
GO
ALTER PROCEDURE {queue+_Cleanup}
    @Before datetime2(7),
    @BatchSize bigint
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    {given}
    {join_variables}
    DECLARE @Old TABLE (Sequence bigint NOT NULL PRIMARY KEY);
    INSERT INTO @Old (Sequence)
    SELECT TOP (@BatchSize) q.Sequence
    FROM {queue} AS q
    WHERE {done} AND q.Topic IS NOT NULL AND q.ProcessedAt < @Before
    ORDER BY q.ProcessedAt;
    BEGIN TRANSACTION;
    {discard}
    OUTPUT deleted.Sequence, deleted.Id, {deleted_message} INTO @Settled (Sequence, Id, MessageId)
    FROM @Old AS s
    INNER LOOP JOIN {queue} AS q WITH (ROWLOCK) ON q.Sequence = s.Sequence
    WHERE {done};
    {count_completed}
    COMMIT TRANSACTION;
    SELECT COUNT_BIG(*) AS Removed FROM @Settled;
END;
GO
