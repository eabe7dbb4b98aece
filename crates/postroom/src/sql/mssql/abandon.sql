-- @P1 owner, @P2 ids, @P3 delays in microseconds or null, @P4 errors, @P5 deferrals (0 or 1).
{given_ids}EXEC {queue+_Abandon} @OwnerToken = @P1, @Ids = {ids}, @Delays = @P3, @Errors = @P4, @Deferred = @P5
