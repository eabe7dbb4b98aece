-- Counts the pending members whose message is already done or dead: those that were attached too late for their
-- ack or fail to see them. The first row holds how many were counted (-1: unknown join); another follows when
-- that finished the join.
IF OBJECT_ID(N'{join+_Reconcile}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {join+_Reconcile} AS RETURN 0');
GO
ALTER PROCEDURE {join+_Reconcile}
    @JoinId uniqueidentifier
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    {join_variables}
    DECLARE @Late TABLE (MessageId uniqueidentifier NOT NULL PRIMARY KEY, State int NOT NULL);
    DECLARE @Done TABLE (MessageId uniqueidentifier NOT NULL PRIMARY KEY);
    DECLARE @Dead TABLE (MessageId uniqueidentifier NOT NULL PRIMARY KEY);
    DECLARE @Count int = -1;
    IF EXISTS (SELECT 1 FROM {join} AS j WHERE j.JoinId = @JoinId)
    BEGIN
        BEGIN TRANSACTION;
        INSERT INTO @Late (MessageId, State)
        SELECT m.OutboxMessageId, MIN(CASE WHEN o.Status < 2 THEN 0 WHEN o.Status = 3 THEN 1 ELSE 2 END)
        FROM {join_member} AS m
        INNER LOOP JOIN {outbox} AS o WITH (INDEX ({message_index})) ON o.MessageId = m.OutboxMessageId
        WHERE m.JoinId = @JoinId AND m.Status = 0
        GROUP BY m.OutboxMessageId;
        INSERT INTO @Done (MessageId) SELECT MessageId FROM @Late WHERE State = 2;
        SET @Count = @@ROWCOUNT;
        INSERT INTO @Dead (MessageId) SELECT MessageId FROM @Late WHERE State = 1;
        SET @Count = @Count + @@ROWCOUNT;
        {count_done}
        {count_dead}
        COMMIT TRANSACTION;
    END;
    SET NOCOUNT OFF;
    SELECT @Count AS Counted, NULL AS JoinId, NULL AS JoinStatus, NULL AS CompletedSteps, NULL AS FailedSteps, NULL AS ExpectedSteps;
    SELECT NULL AS Counted, JoinId, Status AS JoinStatus, CompletedSteps, FailedSteps, ExpectedSteps FROM @Finished;
END;
GO
