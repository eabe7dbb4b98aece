-- @P1 join id, @P2 grouping key, @P3 expected steps, @P4 metadata.
INSERT INTO {join} (JoinId, GroupingKey, ExpectedSteps, Metadata)
VALUES (@P1, @P2, @P3, @P4)
