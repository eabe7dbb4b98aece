-- Takes away a schema that was made for one test, with all that is in it: see testing.rs.
DECLARE @Statements nvarchar(max) = N'';
SELECT @Statements = @Statements + N'ALTER TABLE {schema}.' + QUOTENAME(t.name) + N' DROP CONSTRAINT ' + QUOTENAME(f.name) + N';'
FROM sys.foreign_keys AS f
JOIN sys.tables AS t ON t.object_id = f.parent_object_id
WHERE t.schema_id = SCHEMA_ID(PARSENAME(N'{schema}', 1));
SELECT @Statements = @Statements + N'DROP ' + CASE o.type WHEN 'P' THEN N'PROCEDURE' WHEN 'FN' THEN N'FUNCTION' WHEN 'V' THEN N'VIEW' ELSE N'TABLE' END
    + N' {schema}.' + QUOTENAME(o.name) + N';'
FROM sys.objects AS o
WHERE o.schema_id = SCHEMA_ID(PARSENAME(N'{schema}', 1)) AND o.type IN ('P', 'FN', 'V', 'U');
SET @Statements = @Statements + N'DROP SCHEMA {schema};';
EXEC (@Statements)
