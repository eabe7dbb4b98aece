-- Moves a remembered message by hand: @State 1 processing, 3 done, 4 dead. Leases do not matter here. Returns
-- 0 unknown key, 1 moved, 2 left as it was. Done never changes; processing can only follow seen.
IF OBJECT_ID(N'{inbox+_Mark}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {inbox+_Mark} AS RETURN 0');
GO
ALTER PROCEDURE {inbox+_Mark}
    @Source nvarchar(510),
    @MessageId nvarchar(510),
    @State int,
    @Worker nvarchar(200)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @Key binary(32) = {key_hash};
    DECLARE @Status varchar(20);
    DECLARE @Sequence bigint;
    DECLARE @Outcome int = 2;
    BEGIN TRANSACTION;
    SELECT @Sequence = i.Sequence, @Status = i.Status
    FROM {inbox} AS i WITH (INDEX ({key_index}), UPDLOCK, ROWLOCK)
    WHERE i.KeyHash = @Key;
    IF @Status IS NULL
        SET @Outcome = 0;
    ELSE IF @State = 1 AND @Status = 'Seen'
    BEGIN
        UPDATE {inbox} SET Status = 'Processing' WHERE Sequence = @Sequence;
        SET @Outcome = 1;
    END
    ELSE IF @State = 3 AND @Status <> 'Done'
    BEGIN
        -- One that was never enqueued has no content, and so nothing that was processed at some time.
        UPDATE {inbox}
        SET Status = 'Done',
            ProcessedAt = CASE WHEN Id IS NULL THEN NULL ELSE SYSUTCDATETIME() END,
            ProcessedBy = CASE WHEN Id IS NULL THEN NULL ELSE @Worker END,
            OwnerToken = NULL,
            LockedUntil = NULL
        WHERE Sequence = @Sequence;
        SET @Outcome = 1;
    END
    ELSE IF @State = 4 AND @Status IN ('Seen', 'Processing')
    BEGIN
        UPDATE {inbox}
        SET Status = 'Dead',
            Id = COALESCE(Id, {new_id}),
            ProcessedAt = SYSUTCDATETIME(),
            ProcessedBy = @Worker,
            OwnerToken = NULL,
            LockedUntil = NULL
        WHERE Sequence = @Sequence;
        SET @Outcome = 1;
    END;
    COMMIT TRANSACTION;
    SET NOCOUNT OFF;
    SELECT @Outcome AS Outcome;
END;
GO
