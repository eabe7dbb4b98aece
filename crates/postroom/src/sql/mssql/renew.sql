-- @P1 owner, @P2 ids, @P3 lease in microseconds.
{given_ids}EXEC {queue+_Renew} @OwnerToken = @P1, @Ids = {ids}, @LeaseMicroseconds = @P3
