-- Which of the tables and indexes in $1 are not there.
SELECT n FROM unnest($1::text[]) AS n WHERE to_regclass(n) IS NULL
