-- $1 actor, $2 action, $3 subject, $4 how many messages it changed, $5 detail or NULL.
INSERT INTO {outbox+_audit} (actor, action, subject, count, detail)
VALUES ($1::text, $2::text, $3::text, $4::bigint, $5::text)
