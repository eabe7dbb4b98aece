-- $1 ids of dead messages. Returns the ids that are ready again.
SELECT id FROM {queue+_replay}({dead_ids}) AS replayed (id)
