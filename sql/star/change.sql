UPDATE r SET x = x + 1 WHERE id = (%(round)s * 7919::bigint) %% current_setting('bench.rows')::integer
