UNION ALL
    (SELECT NULL, source, message_id, first_seen, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
            CASE state WHEN 0 THEN 4 WHEN 1 THEN 5 ELSE 2 END, NULL, NULL
     FROM {inbox+_seen}
     WHERE ?10 = 1
       AND state IN (0, 1, 3)
       AND JSON_CONTAINS(?1, CASE state WHEN 0 THEN '4' WHEN 1 THEN '5' ELSE '2' END)
       AND ?2 IS NULL
       AND ?3 IS NULL
       AND (?4 IS NULL OR first_seen <= {now} - ?4)
       AND (?5 IS NULL OR first_seen > {now} - ?5){of_source}
       AND (?11 IS NULL OR (first_seen, source, message_id) {beyond} (?11, ?12, ?13))
     ORDER BY first_seen {direction}, source {direction}, message_id {direction}
     LIMIT {limit})
