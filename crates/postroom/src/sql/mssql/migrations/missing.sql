-- Which of the tables, indexes and columns in @P1, a JSON array of names in brackets, are not there. A column
-- has a name of three parts.
SELECT n.Name
FROM (SELECT CAST([value] AS nvarchar(400)) AS Name FROM OPENJSON(@P1)) AS n
WHERE (PARSENAME(n.Name, 3) IS NULL
       AND OBJECT_ID(n.Name, N'U') IS NULL
       AND NOT EXISTS (
           SELECT 1
           FROM sys.indexes AS i
           JOIN sys.objects AS o ON o.object_id = i.object_id
           WHERE o.schema_id = SCHEMA_ID(PARSENAME(n.Name, 2))
             AND i.name = PARSENAME(n.Name, 1) COLLATE DATABASE_DEFAULT))
   OR (PARSENAME(n.Name, 3) IS NOT NULL
       AND COL_LENGTH(
           QUOTENAME(PARSENAME(n.Name, 3)) + N'.' + QUOTENAME(PARSENAME(n.Name, 2)),
           PARSENAME(n.Name, 1)) IS NULL)
