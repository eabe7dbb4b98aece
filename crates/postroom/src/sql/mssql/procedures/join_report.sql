-- Reports one step by hand: @Status 1 completed, 2 failed. The first row says what happened: 0 counted, 1 it had
-- this status already, 2 it had the other one, 3 not a member, 4 unknown join. Another follows when this call
-- finished the join.
IF OBJECT_ID(N'{join+_Report}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {join+_Report} AS RETURN 0');
GO
ALTER PROCEDURE {join+_Report}
    @JoinId uniqueidentifier,
    @MessageId uniqueidentifier,
    @Status int
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    {join_variables}
    DECLARE @Known int;
    DECLARE @Outcome int;
    BEGIN TRANSACTION;
    SELECT @Known = m.Status
    FROM {join_member} AS m WITH (UPDLOCK, ROWLOCK)
    WHERE m.JoinId = @JoinId AND m.OutboxMessageId = @MessageId;
    SET @Outcome = CASE
        WHEN @Known = 0 THEN 0
        WHEN @Known = @Status THEN 1
        WHEN @Known IS NOT NULL THEN 2
        WHEN EXISTS (SELECT 1 FROM {join} AS j WHERE j.JoinId = @JoinId) THEN 3
        ELSE 4 END;
    IF @Outcome = 0
    BEGIN
        {count_reported}
    END;
    COMMIT TRANSACTION;
    SET NOCOUNT OFF;
    SELECT @Outcome AS Outcome, NULL AS JoinId, NULL AS JoinStatus, NULL AS CompletedSteps, NULL AS FailedSteps, NULL AS ExpectedSteps;
    SELECT NULL AS Outcome, JoinId, Status AS JoinStatus, CompletedSteps, FailedSteps, ExpectedSteps FROM @Finished;
END;
GO
