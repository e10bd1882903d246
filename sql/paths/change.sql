INSERT INTO {table}
SELECT DISTINCT ON (a, b) a, b, 1
FROM generate_series({first}::bigint, {last}) AS n,
     LATERAL (SELECT (hashint8extended(2 * n, {seed}) & 1048575) / 1048576.0 AS x,
                     (hashint8extended(2 * n + 1, {seed}) & 1048575) / 1048576.0 AS y) AS u,
     LATERAL (SELECT (power(x, {skew}) * {vertices})::integer AS a, (power(y, {skew}) * {vertices})::integer AS b) AS edge
ON CONFLICT DO NOTHING
