-- Makes a message a step of a join and says what became of the message: 0 pending, 1 already done, 2 already
-- dead, 3 unknown. Counters are left alone. An unknown join is a foreign key violation.
-- It locks the message's row first, wherever it stands: it runs either before an ack (which then counts the new
-- member) or after it (and then says "already done", for reconcile to count).
IF OBJECT_ID(N'{join+_Attach}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {join+_Attach} AS RETURN 0');
GO
ALTER PROCEDURE {join+_Attach}
    @JoinId uniqueidentifier,
    @MessageId uniqueidentifier
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @State int = 3;
    BEGIN TRANSACTION;
    SELECT @State = CASE MIN(CASE WHEN o.Status < 2 THEN 0 WHEN o.Status = 3 THEN 1 ELSE 2 END) WHEN 0 THEN 0 WHEN 1 THEN 2 ELSE 1 END
    FROM {outbox} AS o WITH (INDEX ({message_index}), UPDLOCK, ROWLOCK)
    WHERE o.MessageId = @MessageId
    HAVING COUNT(*) > 0;
    INSERT INTO {join_member} (JoinId, OutboxMessageId)
    SELECT @JoinId, @MessageId
    WHERE NOT EXISTS (
        SELECT 1 FROM {join_member} AS known WITH (UPDLOCK, SERIALIZABLE)
        WHERE known.JoinId = @JoinId AND known.OutboxMessageId = @MessageId);
    COMMIT TRANSACTION;
    SET NOCOUNT OFF;
    SELECT @State AS MessageState, j.Status AS JoinStatus FROM {join} AS j WHERE j.JoinId = @JoinId;
END;
GO
