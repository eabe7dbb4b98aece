-- ?1 join id. Counts the pending members whose message is already done or dead. The first row says
-- how many (-1: unknown join); rows of joins that this finished follow. Locks the pending members
-- first, and looks for their messages without locking them: an ack holds a message when it comes for its
-- members.
SELECT COUNT(*) INTO @postroom_locked
FROM (SELECT m.status FROM {join_member} AS m WHERE m.join_id = ?1 AND m.status = 0 FOR UPDATE) AS l;

SELECT JSON_ARRAYAGG(HEX(m.message_id)) INTO @postroom_done
FROM {join_member} AS m
WHERE m.join_id = ?1 AND m.status = 0 AND {message_state} = 1;

SELECT JSON_ARRAYAGG(HEX(m.message_id)) INTO @postroom_dead
FROM {join_member} AS m
WHERE m.join_id = ?1 AND m.status = 0 AND {message_state} = 2;

SELECT IF(EXISTS (SELECT 1 FROM {join} AS j WHERE j.join_id = ?1),
          COALESCE(JSON_LENGTH(@postroom_done), 0) + COALESCE(JSON_LENGTH(@postroom_dead), 0), -1),
       NULL, NULL, NULL, NULL, NULL;

{count_done}

{count_dead}
