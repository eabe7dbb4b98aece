-- ?1 join id, ?2 message id, ?3 member status: 1 completed, 2 failed. The first row says what
-- happened: 0 counted, 1 it had this status already, 2 it had the other one, 3 not a member,
-- 4 unknown join. Rows of joins that this finished follow. Locks the member first.
SELECT COUNT(*) INTO @postroom_locked
FROM (SELECT m.status FROM {join_member} AS m WHERE m.message_id = ?2 AND m.join_id = ?1 FOR UPDATE) AS l;

SELECT CASE
           WHEN NOT EXISTS (SELECT 1 FROM {join} AS j WHERE j.join_id = ?1) THEN 4
           ELSE COALESCE(
               (SELECT CASE WHEN m.status = 0 THEN 0 WHEN m.status = ?3 THEN 1 ELSE 2 END
                FROM {join_member} AS m
                WHERE m.message_id = ?2 AND m.join_id = ?1), 3) END,
       NULL, NULL, NULL, NULL, NULL;

{count_reported}
