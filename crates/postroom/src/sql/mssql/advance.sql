-- Lets @P1 microseconds pass for everything in the store, by moving all of its times into the past. For
-- tests only: see testing.rs. Every time column of every table must be here. A number that is added to a date
-- has 31 bits, so it is done in seconds and the rest.
SET XACT_ABORT ON;
DECLARE @Seconds int = -(@P1 / 1000000);
DECLARE @Rest int = -(@P1 % 1000000);
BEGIN TRANSACTION;
UPDATE {outbox}
SET CreatedAt = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, CreatedAt)),
    NextAttemptAt = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, NextAttemptAt)),
    DueTimeUtc = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, DueTimeUtc)),
    LockedUntil = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, LockedUntil)),
    LastAttemptAt = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, LastAttemptAt)),
    ProcessedAt = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, ProcessedAt));
UPDATE {inbox}
SET FirstSeenUtc = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, FirstSeenUtc)),
    LastSeenUtc = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, LastSeenUtc)),
    NextAttemptAt = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, NextAttemptAt)),
    DueTimeUtc = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, DueTimeUtc)),
    BackoffUntil = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, BackoffUntil)),
    LockedUntil = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, LockedUntil)),
    LastAttemptAt = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, LastAttemptAt)),
    ProcessedAt = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, ProcessedAt));
UPDATE {join}
SET CreatedUtc = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, CreatedUtc)),
    LastUpdatedUtc = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, LastUpdatedUtc));
UPDATE {join_member}
SET CreatedUtc = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, CreatedUtc));
UPDATE {outbox+Key}
SET CreatedAt = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, CreatedAt));
UPDATE {outbox+Audit}
SET RecordedAt = DATEADD(MICROSECOND, @Rest, DATEADD(SECOND, @Seconds, RecordedAt));
COMMIT TRANSACTION
