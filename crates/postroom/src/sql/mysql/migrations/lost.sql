-- Which of the views in ?1, a JSON array, are not there.
SELECT n.name
FROM JSON_TABLE(?1, '$[*]' COLUMNS (name VARCHAR(64) PATH '$')) AS n
WHERE LOWER(CONVERT(n.name USING utf8mb3)) NOT IN (
    SELECT LOWER(v.table_name) FROM information_schema.views AS v WHERE v.table_schema = DATABASE())
