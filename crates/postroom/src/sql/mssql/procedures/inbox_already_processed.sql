-- Records the arrival of (@Source, @MessageId) and says whether it was processed before. Returns 1 when it is
-- done, plus 2 when its stored hash differs from @Hash. The first hash stays. Of two first arrivals at once,
-- the second waits for the first: the key's place is locked even while nothing is there.
IF OBJECT_ID(N'{inbox+_AlreadyProcessed}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {inbox+_AlreadyProcessed} AS RETURN 0');
GO
ALTER PROCEDURE {inbox+_AlreadyProcessed}
    @Source nvarchar(510),
    @MessageId nvarchar(510),
    @Hash varbinary(max) = NULL
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @Key binary(32) = {key_hash};
    DECLARE @Status varchar(20);
    DECLARE @Known varbinary(max);
    BEGIN TRANSACTION;
    UPDATE i
    SET @Status = i.Status,
        @Known = i.Hash,
        LastSeenUtc = SYSUTCDATETIME(),
        Hash = COALESCE(i.Hash, @Hash)
    FROM {inbox} AS i WITH (INDEX ({key_index}), UPDLOCK, SERIALIZABLE, ROWLOCK)
    WHERE i.KeyHash = @Key;
    IF @@ROWCOUNT = 0
        INSERT INTO {inbox} (Source, MessageId, Hash) VALUES (@Source, @MessageId, @Hash);
    COMMIT TRANSACTION;
    SET NOCOUNT OFF;
    SELECT CASE WHEN @Status = 'Done' THEN 1 ELSE 0 END + {hash_differs} * 2 AS Answer;
END;
GO
