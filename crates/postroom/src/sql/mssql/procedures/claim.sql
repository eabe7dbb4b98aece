-- Claims up to @BatchSize ready messages for @OwnerToken and returns them whole, in no particular order.
-- Ready: due, and free or with an expired lease. @From bounds the walk over the index from below; see
-- watermark.rs. What is missing in the batch then is looked for everywhere, unless @Everywhere
-- says that the caller will do that by himself now and then. With @Turn, four columns stand before those of
-- a message, as the settle procedure returns them.
-- They are read before the commit, while nobody else can change or lock them.
-- Locks: the claimed rows; rows that others hold are skipped. Readers that see old versions of rows
-- (READ_COMMITTED_SNAPSHOT) would skip nothing, so this one always asks for locks.
IF OBJECT_ID(N'{queue+_Claim}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {queue+_Claim} AS RETURN 0');
GO
ALTER PROCEDURE {queue+_Claim}
    @OwnerToken uniqueidentifier,
    @LeaseMicroseconds bigint,
    @BatchSize int,
    @From datetime2(7) = NULL,
    @Everywhere bit = 1,
    @Turn bit = 0
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @Now datetime2(7) = SYSUTCDATETIME();
    DECLARE @Until datetime2(7) = {lease_end};
    DECLARE @Claimed TABLE (Sequence bigint NOT NULL PRIMARY KEY);
    DECLARE @Count int = 0;
    DECLARE @Bounded bit = CASE WHEN @From IS NULL THEN 0 ELSE 1 END;
    SET @From = COALESCE(@From, '00010101');
    BEGIN TRANSACTION;
    {take}
    IF @Count < @BatchSize AND @Bounded = 1 AND @Everywhere = 1
    BEGIN
        SET @From = '00010101';
        {take}
    END;
    SET NOCOUNT OFF;
    IF @Turn = 1
        SELECT NULL AS Operation, NULL AS SettledId, NULL AS CompletedSteps, NULL AS FailedSteps, {returned}
        FROM @Claimed AS c
        INNER LOOP JOIN {queue} AS q ON q.Sequence = c.Sequence;
    ELSE
        SELECT {returned}
        FROM @Claimed AS c
        INNER LOOP JOIN {queue} AS q ON q.Sequence = c.Sequence;
    COMMIT TRANSACTION;
END;
GO
