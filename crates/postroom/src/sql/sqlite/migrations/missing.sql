-- Which of the tables and indexes in ?1, a JSON array, are not there.
SELECT value FROM json_each(?1) WHERE value COLLATE NOCASE NOT IN (SELECT name FROM sqlite_schema)
