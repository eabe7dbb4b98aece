-- @P1 owner, @P2 lease in microseconds, @P3 batch, @P4 where to look first, in microseconds, or NULL,
-- @P5 whether to look everywhere else too (0 or 1).
DECLARE @From datetime2(7) = {claim_from};
EXEC {queue+_Claim} @OwnerToken = @P1, @LeaseMicroseconds = @P2, @BatchSize = @P3, @From = @From, @Everywhere = @P5
