-- Which of the tables, procedures and functions in @P1, a JSON array of names in brackets, are not there.
SELECT n.Name
FROM (SELECT CAST([value] AS nvarchar(400)) AS Name FROM OPENJSON(@P1)) AS n
WHERE OBJECT_ID(n.Name) IS NULL
