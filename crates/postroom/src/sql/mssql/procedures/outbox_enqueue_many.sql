-- Enqueues any number of messages and makes them steps of joins: parallel JSON arrays, one element per message
-- (@DueTimes in microseconds since 1970 or null), and one per membership: message @Members[i] in join @Joins[i].
-- Messages are numbered in the order of the arrays, which is the order among those that are due at once.
-- An unknown join is a foreign key violation and undoes everything.
IF OBJECT_ID(N'{outbox+_EnqueueMany}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {outbox+_EnqueueMany} AS RETURN 0');
GO
ALTER PROCEDURE {outbox+_EnqueueMany}
    @Ids nvarchar(max),
    @MessageIds nvarchar(max),
    @Topics nvarchar(max),
    @Payloads nvarchar(max),
    @Headers nvarchar(max),
    @CorrelationIds nvarchar(max),
    @DueTimes nvarchar(max),
    @Members nvarchar(max) = NULL,
    @Joins nvarchar(max) = NULL
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    BEGIN TRANSACTION;
    INSERT INTO {outbox} (Id, MessageId, Topic, Payload, Headers, CorrelationId, DueTimeUtc, NextAttemptAt)
    SELECT given.Id, given.MessageId, given.Topic, given.Payload, given.Headers, given.CorrelationId, given.Due,
           CASE WHEN given.Due > SYSUTCDATETIME() THEN given.Due ELSE SYSUTCDATETIME() END
    FROM (
        SELECT CAST(i.[value] AS uniqueidentifier) AS Id, CAST(m.[value] AS uniqueidentifier) AS MessageId,
               t.[value] AS Topic, p.[value] AS Payload, h.[value] AS Headers, c.[value] AS CorrelationId,
               {given_due} AS Due, CAST(i.[key] AS int) AS Place
        FROM OPENJSON(@Ids) AS i
        JOIN OPENJSON(@MessageIds) AS m ON m.[key] = i.[key]
        JOIN OPENJSON(@Topics) AS t ON t.[key] = i.[key]
        JOIN OPENJSON(@Payloads) AS p ON p.[key] = i.[key]
        JOIN OPENJSON(@Headers) AS h ON h.[key] = i.[key]
        JOIN OPENJSON(@CorrelationIds) AS c ON c.[key] = i.[key]
        JOIN OPENJSON(@DueTimes) AS d ON d.[key] = i.[key]) AS given
    ORDER BY given.Place
    OPTION (HASH JOIN);
    INSERT INTO {join_member} (JoinId, OutboxMessageId)
    SELECT DISTINCT CAST(j.[value] AS uniqueidentifier), CAST(m.[value] AS uniqueidentifier)
    FROM OPENJSON(@Members) AS m
    JOIN OPENJSON(@Joins) AS j ON j.[key] = m.[key]
    WHERE NOT EXISTS (
        SELECT 1 FROM {join_member} AS known WITH (FORCESEEK)
        WHERE known.JoinId = CAST(j.[value] AS uniqueidentifier) AND known.OutboxMessageId = CAST(m.[value] AS uniqueidentifier));
    COMMIT TRANSACTION;
END;
GO
