-- Which of the tables and indexes ?1, a JSON array, are missing: name, and 0.
SELECT n.name, 0
FROM JSON_TABLE(?1, '$[*]' COLUMNS (name VARCHAR(64) PATH '$')) AS n
WHERE LOWER(CONVERT(n.name USING utf8mb3)) NOT IN (
    SELECT LOWER(t.table_name) FROM information_schema.tables AS t WHERE t.table_schema = DATABASE())
  AND LOWER(CONVERT(n.name USING utf8mb3)) NOT IN (
    SELECT LOWER(i.index_name) FROM information_schema.statistics AS i WHERE i.table_schema = DATABASE())
