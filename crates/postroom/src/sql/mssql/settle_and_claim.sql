-- One round trip of a dispatcher, in one transaction: settles a mixed batch (@P6 to @P19, as the settle
-- procedure takes them) and claims the next (@P1 to @P5, as claim takes them; a batch of 0 claims nothing).
-- The first rows tell what was settled; the others begin with four NULLs and are messages.
SET XACT_ABORT ON;
DECLARE @From datetime2(7) = {claim_from};
BEGIN TRANSACTION;
EXEC {queue+_Settle}
    @Worker = @P6, @Keep = @P7, @Acked = @P8, @AckedBy = @P9, @Failed = @P10, @FailedBy = @P11, @Reasons = @P12,
    @Abandoned = @P13, @AbandonedBy = @P14, @Delays = @P15, @Errors = @P16, @Deferred = @P17, @Released = @P18,
    @ReleasedBy = @P19;
IF @P3 > 0
    EXEC {queue+_Claim}
        @OwnerToken = @P1, @LeaseMicroseconds = @P2, @BatchSize = @P3, @From = @From, @Everywhere = @P5, @Turn = 1;
COMMIT TRANSACTION
