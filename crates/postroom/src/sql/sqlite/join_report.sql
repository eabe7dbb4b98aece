-- ?1 join id, ?2 message id, ?3 member status: 1 completed, 2 failed. The first row says what
-- happened: 0 counted, 1 it had this status already, 2 it had the other one, 3 not a member,
-- 4 unknown join. Rows of joins that moved follow.
SELECT CASE
           WHEN NOT EXISTS (SELECT 1 FROM {join} WHERE join_id = ?1) THEN 4
           ELSE coalesce(
               (SELECT CASE WHEN status = 0 THEN 0 WHEN status = ?3 THEN 1 ELSE 2 END
                FROM {join_member}
                WHERE message_id = ?2 AND join_id = ?1), 3) END,
       NULL, NULL, NULL, NULL, NULL;

{count_reported}
