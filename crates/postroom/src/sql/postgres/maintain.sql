SELECT 1::bigint FROM {queue+_maintain}()
