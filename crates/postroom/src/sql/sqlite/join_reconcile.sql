-- ?1 join id. Counts the pending members whose message is already done or dead. The first row says
-- how many (-1: unknown join); rows of joins that moved follow.
SELECT CASE
           WHEN NOT EXISTS (SELECT 1 FROM {join} WHERE join_id = ?1) THEN -1
           ELSE (
               SELECT count(*)
               FROM {join_member} AS m
               WHERE m.join_id = ?1 AND m.status = 0 AND {message_state} IN (1, 2)) END,
       NULL, NULL, NULL, NULL, NULL;

{count_done}

{count_dead}
