-- Which of the tables and indexes ?1, a JSON array, are missing: name, and 0.
SELECT value, 0
FROM json_each(?1)
WHERE value COLLATE NOCASE NOT IN (SELECT name FROM sqlite_schema)
