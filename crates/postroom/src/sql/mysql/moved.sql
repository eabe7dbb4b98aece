(
    SELECT m.join_id, COUNT(DISTINCT m.message_id) AS n
    FROM {settled} AS g
    STRAIGHT_JOIN {join_member} AS m FORCE INDEX (PRIMARY) ON m.message_id = g.message_id {in_join}
    WHERE @postroom_counted > 0 AND m.status = 8 + {step}
    GROUP BY m.join_id
    ORDER BY m.join_id
    LIMIT 1000000)
