-- Which of the tables and indexes ?1, a JSON array, are missing: name, and 0.
SELECT n.name, 0
FROM JSON_TABLE(?1, '$[*]' COLUMNS (name VARCHAR(64) PATH '$')) AS n
WHERE CAST(LOWER(n.name) AS BINARY) NOT IN (
    SELECT CAST(LOWER(t.table_name) AS BINARY) FROM information_schema.tables AS t WHERE t.table_schema = DATABASE())
  AND CAST(LOWER(n.name) AS BINARY) NOT IN (
    SELECT CAST(LOWER(i.index_name) AS BINARY) FROM information_schema.statistics AS i WHERE i.table_schema = DATABASE())
