-- Takes away a schema that was made for one test: see testing.rs.
DROP SCHEMA {schema} CASCADE
