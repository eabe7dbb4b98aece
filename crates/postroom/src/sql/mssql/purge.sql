-- @P1 ids of dead messages, or NULL for those that died longer than @P2 microseconds ago, at most @P3.
{given_dead_ids}EXEC {queue+_Purge} @Ids = {dead_ids}, @AgeMicroseconds = @P2, @BatchSize = @P3
