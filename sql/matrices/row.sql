-- Another row is added to that of a number.
TRUNCATE u, v;
INSERT INTO u VALUES ({number}, 1);
INSERT INTO v SELECT n, 1 + n % 7 FROM generate_series(1, {size}) AS n;
SELECT idivm.apply_outer('a2', 'u', 'v')
