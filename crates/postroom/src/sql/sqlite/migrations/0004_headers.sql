-- A message carries headers: a small JSON object (trace context, message type, destination).
ALTER TABLE {outbox} ADD COLUMN headers TEXT;

ALTER TABLE {outbox+_done} ADD COLUMN headers TEXT;

ALTER TABLE {outbox+_dead} ADD COLUMN headers TEXT;

ALTER TABLE {inbox} ADD COLUMN headers TEXT;

ALTER TABLE {inbox+_done} ADD COLUMN headers TEXT;

ALTER TABLE {inbox+_dead} ADD COLUMN headers TEXT;
