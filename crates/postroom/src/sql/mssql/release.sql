-- @P1 owner, @P2 ids.
{given_ids}EXEC {queue+_Release} @OwnerToken = @P1, @Ids = {ids}
