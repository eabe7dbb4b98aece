-- Which of the tables and indexes in ?1, a JSON array, are not there. An index bears the name of its table.
SELECT n.name
FROM JSON_TABLE(?1, '$[*]' COLUMNS (name VARCHAR(64) PATH '$')) AS n
WHERE CAST(LOWER(n.name) AS BINARY) NOT IN (
    SELECT CAST(LOWER(t.table_name) AS BINARY) FROM information_schema.tables AS t WHERE t.table_schema = DATABASE())
  AND CAST(LOWER(n.name) AS BINARY) NOT IN (
    SELECT CAST(LOWER(i.index_name) AS BINARY) FROM information_schema.statistics AS i WHERE i.table_schema = DATABASE())
