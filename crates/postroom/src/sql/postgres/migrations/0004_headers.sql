-- A message carries headers: a small JSON object (trace context, message type, destination).
ALTER TABLE {outbox} ADD COLUMN headers text;
ALTER TABLE {outbox+_done} ADD COLUMN headers text;
ALTER TABLE {outbox+_dead} ADD COLUMN headers text;
ALTER TABLE {inbox} ADD COLUMN headers text;
ALTER TABLE {inbox+_done} ADD COLUMN headers text;
ALTER TABLE {inbox+_dead} ADD COLUMN headers text;
