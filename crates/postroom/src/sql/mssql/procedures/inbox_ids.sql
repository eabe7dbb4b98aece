-- Turns keys into work item ids, for settling by (source, message id) or by the bare message id. @Keys is a
-- JSON array of [source or null, message id]; so is what comes back, of ids.
IF OBJECT_ID(N'{inbox+_Ids}', N'FN') IS NULL
    EXEC (N'CREATE FUNCTION {inbox+_Ids} (@Keys nvarchar(max)) RETURNS nvarchar(max) AS BEGIN RETURN NULL END');
GO
ALTER FUNCTION {inbox+_Ids} (@Keys nvarchar(max))
RETURNS nvarchar(max)
AS
BEGIN
    RETURN (
        SELECT N'[' + COALESCE(STRING_AGG(CAST(N'"' + CAST(known.Id AS nvarchar(36)) + N'"' AS nvarchar(max)), N','), N'') + N']'
        FROM (
            SELECT i.Id
            FROM OPENJSON(@Keys) AS k
            CROSS APPLY (SELECT JSON_VALUE(k.[value], N'$[0]') AS Source, JSON_VALUE(k.[value], N'$[1]') AS MessageId) AS given
            INNER LOOP JOIN {inbox} AS i WITH (INDEX ({key_index})) ON i.KeyHash = {given_key_hash}
            WHERE given.Source IS NOT NULL AND i.Id IS NOT NULL
            UNION
            SELECT i.Id
            FROM OPENJSON(@Keys) AS k
            CROSS APPLY (SELECT JSON_VALUE(k.[value], N'$[0]') AS Source, JSON_VALUE(k.[value], N'$[1]') AS MessageId) AS given
            INNER LOOP JOIN {inbox} AS i WITH (INDEX ([IX_{plain inbox}_Message]))
                ON i.MessageId = given.MessageId COLLATE Latin1_General_100_BIN2
                AND DATALENGTH(i.MessageId) = DATALENGTH(given.MessageId)
            WHERE given.Source IS NULL AND i.Id IS NOT NULL) AS known);
END;
GO
