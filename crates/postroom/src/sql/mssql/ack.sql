-- @P1 owner, @P2 ids, @P3 worker, @P4 whether to keep the messages in the archive (0 or 1).
{given_ids}EXEC {queue+_Ack} @OwnerToken = @P1, @Ids = {ids}, @Worker = @P3, @Keep = @P4
