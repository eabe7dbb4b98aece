-- Which of the views in ?1, a JSON array, are not there.
SELECT n.name
FROM JSON_TABLE(?1, '$[*]' COLUMNS (name VARCHAR(64) PATH '$')) AS n
WHERE CAST(LOWER(n.name) AS BINARY) NOT IN (
    SELECT CAST(LOWER(v.table_name) AS BINARY) FROM information_schema.views AS v WHERE v.table_schema = DATABASE())
