-- A message carries headers: a small JSON object (trace context, message type, destination).
ALTER TABLE {outbox} ADD COLUMN headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

ALTER TABLE {outbox+_done} ADD COLUMN headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

ALTER TABLE {outbox+_dead} ADD COLUMN headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

ALTER TABLE {inbox} ADD COLUMN headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

ALTER TABLE {inbox+_done} ADD COLUMN headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

ALTER TABLE {inbox+_dead} ADD COLUMN headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
