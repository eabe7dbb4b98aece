-- @P1 owner, @P2 ids, @P3 errors (the last one serves the rest), @P4 worker.
{given_ids}EXEC {queue+_Fail} @OwnerToken = @P1, @Ids = {ids}, @Errors = @P3, @Worker = @P4
