-- Marks the messages that @OwnerToken still holds among @Ids, a JSON array, as done (or drops them when @Keep
-- is 0) and counts them as completed steps of their joins.
-- Returns one row per message that really changed (Id set), and one per join that this call finished (JoinId
-- set); the procedure's own value is the number of messages. Unknown, foreign and repeated ids are ignored.
-- Locks, in this order: messages, join members, joins, then the wait messages of finished joins.
IF OBJECT_ID(N'{queue+_Ack}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {queue+_Ack} AS RETURN 0');
GO
ALTER PROCEDURE {queue+_Ack}
    @OwnerToken uniqueidentifier,
    @Ids nvarchar(max),
    @Worker nvarchar(200) = NULL,
    @Keep bit = 1
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    {given}
    {join_variables}
    INSERT INTO @Given (Id, OwnerToken)
    SELECT CAST(i.[value] AS uniqueidentifier), @OwnerToken FROM OPENJSON(@Ids) AS i;
    BEGIN TRANSACTION;
    {ack}
    DECLARE @Count int = @@ROWCOUNT;
    {count_completed}
    IF @Keep = 0
    BEGIN
        {forget_content}
    END;
    COMMIT TRANSACTION;
    SET NOCOUNT OFF;
    SELECT Id, CAST(NULL AS uniqueidentifier) AS JoinId, NULL AS JoinStatus, NULL AS CompletedSteps, NULL AS FailedSteps, NULL AS ExpectedSteps
    FROM @Settled{finished_rows};
    RETURN @Count;
END;
GO
