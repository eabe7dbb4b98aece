-- ?1 join id. Counts the pending members whose message is already done or dead. The first row says
-- how many (-1: unknown join); rows of joins that this finished follow. Locks the pending members
-- first, and looks for their messages without locking them: an ack holds a message when it comes for its
-- members. A member that somebody else holds is being counted, or is not committed: neither is ours.
SELECT JSON_ARRAYAGG(HEX(l.message_id)) INTO @postroom_chosen
FROM (
    SELECT m.message_id
    FROM {join_member} AS m
    WHERE m.join_id = ?1 AND m.status = 0
    FOR UPDATE SKIP LOCKED) AS l;

SELECT JSON_ARRAYAGG(HEX(m.message_id)) INTO @postroom_done
FROM (SELECT UNHEX(c.id) AS message_id FROM {chosen} AS c) AS m
WHERE {message_state} = 1;

SELECT JSON_ARRAYAGG(HEX(m.message_id)) INTO @postroom_dead
FROM (SELECT UNHEX(c.id) AS message_id FROM {chosen} AS c) AS m
WHERE {message_state} = 2;

SELECT IF(EXISTS (SELECT 1 FROM {join} AS j WHERE j.join_id = ?1),
          COALESCE(JSON_LENGTH(@postroom_done), 0) + COALESCE(JSON_LENGTH(@postroom_dead), 0), -1),
       NULL, NULL, NULL, NULL, NULL;

{count_done}

{count_dead}
