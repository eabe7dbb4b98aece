-- Cancels a pending join and wakes its wait messages. Returns 1 cancelled, 0 it had already finished, -1 unknown
-- join.
IF OBJECT_ID(N'{join+_Cancel}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {join+_Cancel} AS RETURN 0');
GO
ALTER PROCEDURE {join+_Cancel}
    @JoinId uniqueidentifier
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @Outcome int;
    BEGIN TRANSACTION;
    UPDATE {join} SET Status = 3, LastUpdatedUtc = SYSUTCDATETIME() WHERE JoinId = @JoinId AND Status = 0;
    SET @Outcome = @@ROWCOUNT;
    IF @Outcome = 1
        UPDATE o
        SET NextAttemptAt = SYSUTCDATETIME()
        FROM {join+Wait} AS w
        INNER LOOP JOIN {outbox} AS o WITH (INDEX ({waiting_index}), ROWLOCK) ON o.Id = w.MessageId
        WHERE w.JoinId = @JoinId AND o.Status < 2;
    ELSE IF NOT EXISTS (SELECT 1 FROM {join} AS j WHERE j.JoinId = @JoinId)
        SET @Outcome = -1;
    COMMIT TRANSACTION;
    SET NOCOUNT OFF;
    SELECT @Outcome AS Outcome;
END;
GO
