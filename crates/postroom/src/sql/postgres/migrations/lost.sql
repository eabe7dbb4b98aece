-- Which of the functions and views in $1 are not there.
SELECT n FROM unnest($1::text[]) AS n WHERE to_regproc(n) IS NULL AND to_regclass(n) IS NULL
