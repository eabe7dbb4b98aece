-- Settles a mixed batch in one transaction: what a dispatcher has gathered since its last call. Each id comes
-- with the token that claimed it, as parallel JSON arrays. Returns one row per message that really changed
-- ('ack', 'fail', 'abandon' or 'release', and its id) and one per join that this finished ('join', its id and
-- its counters).
-- Locks, in this order: acked and failed messages, all their pending join members, all joins of these in one
-- order, the wait messages of finished joins, and only then abandoned and released messages: an abandoned wait
-- message is what the transaction that finishes its join waits for while it holds that join.
IF OBJECT_ID(N'{queue+_Settle}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {queue+_Settle} AS RETURN 0');
GO
ALTER PROCEDURE {queue+_Settle}
    @Worker nvarchar(200),
    @Keep bit,
    @Acked nvarchar(max),
    @AckedBy nvarchar(max),
    @Failed nvarchar(max),
    @FailedBy nvarchar(max),
    @Reasons nvarchar(max),
    @Abandoned nvarchar(max),
    @AbandonedBy nvarchar(max),
    @Delays nvarchar(max),
    @Errors nvarchar(max),
    @Deferred nvarchar(max),
    @Released nvarchar(max),
    @ReleasedBy nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    {given}
    {join_variables}
    DECLARE @Result TABLE (Operation varchar(10) NOT NULL, Id uniqueidentifier NOT NULL, CompletedSteps int NULL, FailedSteps int NULL);
    DECLARE @Completed TABLE (Sequence bigint NOT NULL PRIMARY KEY, MessageId uniqueidentifier NULL);
    DECLARE @Died TABLE (MessageId uniqueidentifier NULL);
    BEGIN TRANSACTION;
    IF @Acked <> N'[]'
    BEGIN
        INSERT INTO @Given (Id, OwnerToken)
        SELECT CAST(i.[value] AS uniqueidentifier), CAST(o.[value] AS uniqueidentifier)
        FROM OPENJSON(@Acked) AS i
        JOIN OPENJSON(@AckedBy) AS o ON o.[key] = i.[key]
        OPTION (HASH JOIN);
        {ack}
        INSERT INTO @Result (Operation, Id) SELECT 'ack', Id FROM @Settled;
        INSERT INTO @Completed (Sequence, MessageId) SELECT Sequence, MessageId FROM @Settled;
        DELETE FROM @Given;
        DELETE FROM @Settled;
    END;
    IF @Failed <> N'[]'
    BEGIN
        INSERT INTO @Given (Id, OwnerToken, Error)
        SELECT CAST(i.[value] AS uniqueidentifier), CAST(o.[value] AS uniqueidentifier), e.[value]
        FROM OPENJSON(@Failed) AS i
        JOIN OPENJSON(@FailedBy) AS o ON o.[key] = i.[key]
        JOIN OPENJSON(@Reasons) AS e ON e.[key] = i.[key]
        OPTION (HASH JOIN);
        {fail}
        INSERT INTO @Result (Operation, Id) SELECT 'fail', Id FROM @Settled;
        INSERT INTO @Died (MessageId) SELECT MessageId FROM @Settled;
        DELETE FROM @Given;
        DELETE FROM @Settled;
    END;
    {count_settled}
    IF @Keep = 0
    BEGIN
        INSERT INTO @Settled (Sequence, Id) SELECT Sequence, '00000000-0000-0000-0000-000000000000' FROM @Completed;
        {forget_content}
        DELETE FROM @Settled;
    END;
    IF @Abandoned <> N'[]'
    BEGIN
        INSERT INTO @Given (Id, OwnerToken, Delay, Error, Deferred)
        SELECT CAST(i.[value] AS uniqueidentifier), CAST(o.[value] AS uniqueidentifier), CAST(d.[value] AS bigint), e.[value], CAST(f.[value] AS int)
        FROM OPENJSON(@Abandoned) AS i
        JOIN OPENJSON(@AbandonedBy) AS o ON o.[key] = i.[key]
        JOIN OPENJSON(@Delays) AS d ON d.[key] = i.[key]
        JOIN OPENJSON(@Errors) AS e ON e.[key] = i.[key]
        JOIN OPENJSON(@Deferred) AS f ON f.[key] = i.[key]
        OPTION (HASH JOIN);
        {abandon}
        INSERT INTO @Result (Operation, Id) SELECT 'abandon', Id FROM @Settled;
        DELETE FROM @Given;
        DELETE FROM @Settled;
    END;
    IF @Released <> N'[]'
    BEGIN
        INSERT INTO @Given (Id, OwnerToken)
        SELECT CAST(i.[value] AS uniqueidentifier), CAST(o.[value] AS uniqueidentifier)
        FROM OPENJSON(@Released) AS i
        JOIN OPENJSON(@ReleasedBy) AS o ON o.[key] = i.[key]
        OPTION (HASH JOIN);
        {release}
        INSERT INTO @Result (Operation, Id) SELECT 'release', Id FROM @Settled;
    END;
    COMMIT TRANSACTION;
    SET NOCOUNT OFF;
    SELECT Operation, Id AS SettledId, CompletedSteps, FailedSteps FROM @Result;
END;
GO
