-- One message, one row changed. @P7 is the due time in microseconds since 1970, or NULL.
-- The due time is folded into NextAttemptAt, so that one index serves the claim.
INSERT INTO {outbox} (Id, MessageId, Topic, Payload, Headers, CorrelationId, DueTimeUtc, NextAttemptAt)
SELECT @P1, @P2, @P3, @P4, @P5, @P6, due.Time, CASE WHEN due.Time > SYSUTCDATETIME() THEN due.Time ELSE SYSUTCDATETIME() END
FROM (SELECT {enqueued_due} AS Time) AS due
