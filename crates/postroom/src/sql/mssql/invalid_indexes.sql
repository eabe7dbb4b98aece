-- Which of the tables and indexes @P1, a JSON array of names in brackets, are missing, or are indexes that are
-- switched off: name, and 0 missing or 1 invalid.
SELECT n.Name, CASE WHEN x.object_id IS NULL THEN 0 ELSE 1 END AS Invalid
FROM (SELECT CAST([value] AS nvarchar(400)) AS Name FROM OPENJSON(@P1)) AS n
LEFT JOIN (
    SELECT i.object_id, i.is_disabled, QUOTENAME(s.name) + N'.' + QUOTENAME(i.name) AS Name
    FROM sys.indexes AS i
    JOIN sys.objects AS o ON o.object_id = i.object_id
    JOIN sys.schemas AS s ON s.schema_id = o.schema_id) AS x
    ON x.Name = n.Name COLLATE DATABASE_DEFAULT
WHERE (x.object_id IS NULL AND OBJECT_ID(n.Name, N'U') IS NULL) OR x.is_disabled = 1
