-- A store on SQL Server in the words of the other databases, for tests.
CREATE SCHEMA [{schema}_look];
GO
CREATE VIEW [{schema}_look].[outbox] AS
SELECT Id AS id, MessageId AS message_id, CreatedAt AS created_at, NextAttemptAt AS next_attempt_at, DueTimeUtc AS due_time, LockedUntil AS locked_until, LastAttemptAt AS last_attempt_at, OwnerToken AS owner_token, RetryCount AS attempt_count, DeferralCount AS deferral_count, DeliveryCount AS delivery_count, Topic AS topic, CorrelationId AS correlation_id, LastError AS last_error, Payload AS payload, Headers AS headers
FROM [{schema}].[Outbox]
WHERE Status < 2;
GO
CREATE VIEW [{schema}_look].[outbox_done] AS
SELECT Id AS id, MessageId AS message_id, CreatedAt AS created_at, NextAttemptAt AS next_attempt_at, DueTimeUtc AS due_time, LockedUntil AS locked_until, LastAttemptAt AS last_attempt_at, OwnerToken AS owner_token, RetryCount AS attempt_count, DeferralCount AS deferral_count, DeliveryCount AS delivery_count, Topic AS topic, CorrelationId AS correlation_id, LastError AS last_error, Payload AS payload, Headers AS headers, ProcessedAt AS processed_at, ProcessedBy AS processed_by
FROM [{schema}].[Outbox]
WHERE Status = 2;
GO
CREATE VIEW [{schema}_look].[outbox_dead] AS
SELECT Id AS id, MessageId AS message_id, CreatedAt AS created_at, NextAttemptAt AS next_attempt_at, DueTimeUtc AS due_time, LockedUntil AS locked_until, LastAttemptAt AS last_attempt_at, OwnerToken AS owner_token, RetryCount AS attempt_count, DeferralCount AS deferral_count, DeliveryCount AS delivery_count, Topic AS topic, CorrelationId AS correlation_id, LastError AS last_error, Payload AS payload, Headers AS headers, ProcessedAt AS processed_at, ProcessedBy AS processed_by
FROM [{schema}].[Outbox]
WHERE Status = 3;
GO
CREATE VIEW [{schema}_look].[outbox_all] AS
SELECT Id AS id, MessageId AS message_id, CreatedAt AS created_at, NextAttemptAt AS next_attempt_at, DueTimeUtc AS due_time, LockedUntil AS locked_until, LastAttemptAt AS last_attempt_at, OwnerToken AS owner_token, RetryCount AS attempt_count, DeferralCount AS deferral_count, DeliveryCount AS delivery_count, Topic AS topic, CorrelationId AS correlation_id, LastError AS last_error, Payload AS payload, Headers AS headers, ProcessedAt AS processed_at, ProcessedBy AS processed_by, Status AS status, IsProcessed AS is_processed
FROM [{schema}].[Outbox];
GO
CREATE VIEW [{schema}_look].[inbox] AS
SELECT Id AS id, Source AS source, MessageId AS message_id, FirstSeenUtc AS created_at, NextAttemptAt AS next_attempt_at, DueTimeUtc AS due_time, BackoffUntil AS backoff_until, LockedUntil AS locked_until, LastAttemptAt AS last_attempt_at, OwnerToken AS owner_token, Attempt AS attempt_count, DeferralCount AS deferral_count, DeliveryCount AS delivery_count, Topic AS topic, CorrelationId AS correlation_id, LastError AS last_error, Payload AS payload, Headers AS headers
FROM [{schema}].[Inbox]
WHERE Status = 'Processing' AND Id IS NOT NULL;
GO
CREATE VIEW [{schema}_look].[inbox_done] AS
SELECT Id AS id, Source AS source, MessageId AS message_id, FirstSeenUtc AS created_at, NextAttemptAt AS next_attempt_at, DueTimeUtc AS due_time, BackoffUntil AS backoff_until, LockedUntil AS locked_until, LastAttemptAt AS last_attempt_at, OwnerToken AS owner_token, Attempt AS attempt_count, DeferralCount AS deferral_count, DeliveryCount AS delivery_count, Topic AS topic, CorrelationId AS correlation_id, LastError AS last_error, Payload AS payload, Headers AS headers, ProcessedAt AS processed_at, ProcessedBy AS processed_by
FROM [{schema}].[Inbox]
WHERE Status = 'Done' AND Topic IS NOT NULL;
GO
CREATE VIEW [{schema}_look].[inbox_dead] AS
SELECT Id AS id, Source AS source, MessageId AS message_id, FirstSeenUtc AS created_at, NextAttemptAt AS next_attempt_at, DueTimeUtc AS due_time, BackoffUntil AS backoff_until, LockedUntil AS locked_until, LastAttemptAt AS last_attempt_at, OwnerToken AS owner_token, Attempt AS attempt_count, DeferralCount AS deferral_count, DeliveryCount AS delivery_count, Topic AS topic, CorrelationId AS correlation_id, LastError AS last_error, Payload AS payload, Headers AS headers, ProcessedAt AS processed_at, ProcessedBy AS processed_by
FROM [{schema}].[Inbox]
WHERE Status = 'Dead';
GO
CREATE VIEW [{schema}_look].[inbox_seen] AS
SELECT MessageId AS message_id, Source AS source, FirstSeenUtc AS first_seen, LastSeenUtc AS last_seen, Id AS work_id, CASE WHEN Id IS NOT NULL THEN 2 WHEN Status = 'Seen' THEN 0 WHEN Status = 'Processing' THEN 1 ELSE 3 END AS state, Hash AS hash
FROM [{schema}].[Inbox];
GO
CREATE VIEW [{schema}_look].[outbox_join] AS
SELECT JoinId AS join_id, CreatedUtc AS created_at, LastUpdatedUtc AS last_updated_at, ExpectedSteps AS expected_steps, CompletedSteps AS completed_steps, FailedSteps AS failed_steps, Status AS status, GroupingKey AS grouping_key, Metadata AS metadata
FROM [{schema}].[OutboxJoin];
GO
CREATE VIEW [{schema}_look].[outbox_join_member] AS
SELECT OutboxMessageId AS message_id, JoinId AS join_id, CreatedUtc AS created_at, Status AS status
FROM [{schema}].[OutboxJoinMember];
GO
CREATE VIEW [{schema}_look].[outbox_join_wait] AS
SELECT JoinId AS join_id, MessageId AS message_id
FROM [{schema}].[OutboxJoinWait];
GO
CREATE VIEW [{schema}_look].[outbox_key] AS
SELECT IdempotencyKey AS [key], Hash AS hash, Id AS id, MessageId AS message_id, CreatedAt AS created_at
FROM [{schema}].[OutboxKey];
GO
CREATE VIEW [{schema}_look].[outbox_audit] AS
SELECT Id AS id, RecordedAt AS recorded_at, Actor AS actor, Action AS action, Subject AS subject, MessageCount AS count, Detail AS detail
FROM [{schema}].[OutboxAudit];
GO
CREATE VIEW [{schema}_look].[outbox_schema] AS
SELECT [Version] AS version, [Name] AS name, [Checksum] AS checksum, AppliedAt AS applied_at
FROM [{schema}].[OutboxSchema];
GO
