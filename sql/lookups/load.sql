-- Three relations of a path, r(a, b), s(b, c) and t(c, d), of which a reader gives b and c.
--
--   SET bench.rows = 10000;       rows of all together, about
--
-- In s, the values b = 0 and c = 0 are frequent: a new end of them meets many rows. The pair (-1, -1) has as many rows
-- in the result as there are rows. The pair (-2, -2) meets many rows of r, but no row of t.

CREATE TABLE r AS SELECT n AS a, n AS b FROM generate_series(0, current_setting('bench.rows')::bigint / 6) AS n;
CREATE TABLE t AS SELECT b AS c, a AS d FROM r;
CREATE TABLE s AS SELECT b, 0::bigint AS c FROM r UNION SELECT 0, b FROM r;
INSERT INTO r SELECT n, -1 FROM generate_series(1, sqrt(current_setting('bench.rows')::bigint)::bigint) AS n;
INSERT INTO t SELECT b, a FROM r WHERE b = -1;
INSERT INTO r SELECT n, -2 FROM generate_series(1, current_setting('bench.rows')::bigint / 3) AS n;
INSERT INTO s VALUES (-1, -1), (-2, -2);
ALTER TABLE r ADD PRIMARY KEY (a, b);
ALTER TABLE s ADD PRIMARY KEY (b, c);
ALTER TABLE t ADD PRIMARY KEY (c, d);
