-- An outer product is added to all entries.
TRUNCATE u, v;
INSERT INTO u SELECT n, 1 + (n + {number}) % 5 FROM generate_series(1, {size}) AS n;
INSERT INTO v SELECT n, 1 + (n * {number}) % 7 FROM generate_series(1, {size}) AS n;
SELECT idivm.apply_outer('a2', 'u', 'v')
