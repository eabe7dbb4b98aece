-- ?1 actor, ?2 action, ?3 subject, ?4 how many messages it changed, ?5 detail or NULL.
INSERT INTO {outbox+_audit} (recorded_at, actor, action, subject, count, detail)
VALUES ({now}, ?1, ?2, ?3, ?4, ?5)
