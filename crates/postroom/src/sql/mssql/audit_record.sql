-- @P1 actor, @P2 action, @P3 subject, @P4 how many messages it changed, @P5 detail or NULL.
INSERT INTO {outbox+Audit} (Actor, Action, Subject, MessageCount, Detail)
VALUES (@P1, @P2, @P3, @P4, @P5)
