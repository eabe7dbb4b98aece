-- @P1 ids of dead messages. Returns the ids that are ready again.
{given_dead_ids}EXEC {queue+_Replay} @Ids = {dead_ids}
