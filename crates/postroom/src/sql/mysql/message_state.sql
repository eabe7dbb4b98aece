CASE
    WHEN EXISTS (SELECT 1 FROM {outbox} AS o WHERE o.id = m.message_id) THEN 0
    WHEN EXISTS (SELECT 1 FROM {outbox} AS o WHERE o.message_id = m.message_id) THEN 0
    WHEN EXISTS (SELECT 1 FROM {outbox+_dead} AS d WHERE d.id = m.message_id) THEN 2
    WHEN EXISTS (SELECT 1 FROM {outbox+_dead} AS d WHERE d.message_id = m.message_id) THEN 2
    WHEN EXISTS (SELECT 1 FROM {outbox+_done} AS d WHERE d.id = m.message_id) THEN 1
    WHEN EXISTS (SELECT 1 FROM {outbox+_done} AS d WHERE d.message_id = m.message_id) THEN 1
    ELSE 3 END
