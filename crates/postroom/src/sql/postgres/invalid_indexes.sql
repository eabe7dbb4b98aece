-- Which of the tables and indexes $1 are missing, or are indexes that the planner does not use: name, and
-- 0 missing or 1 invalid.
SELECT n, CASE WHEN x.indexrelid IS NULL THEN 0 ELSE 1 END
FROM unnest($1::text[]) AS n
LEFT JOIN pg_index AS x ON x.indexrelid = to_regclass(n)
WHERE to_regclass(n) IS NULL OR NOT x.indisvalid OR NOT x.indisready
