-- A wait message and its entry in the wake-up table. An unknown join is a foreign key violation.
IF OBJECT_ID(N'{outbox+_EnqueueWait}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {outbox+_EnqueueWait} AS RETURN 0');
GO
ALTER PROCEDURE {outbox+_EnqueueWait}
    @Id uniqueidentifier,
    @Topic nvarchar(510),
    @Payload nvarchar(max),
    @Headers nvarchar(max),
    @JoinId uniqueidentifier
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    BEGIN TRANSACTION;
    INSERT INTO {outbox} (Id, MessageId, Topic, Payload, Headers)
    VALUES (@Id, @Id, @Topic, @Payload, @Headers);
    INSERT INTO {join+Wait} (JoinId, MessageId)
    VALUES (@JoinId, @Id);
    COMMIT TRANSACTION;
    SET NOCOUNT OFF;
    SELECT @Id AS Id;
END;
GO
