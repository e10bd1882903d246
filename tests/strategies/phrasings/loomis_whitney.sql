-- The Loomis-Whitney count of degree 4.
-- strategy: skew

-- with USING
SELECT count(*) AS n FROM l1 JOIN l2 USING (b, c) JOIN l3 USING (c, d, a) JOIN l4 USING (d, a, b);

-- as joins
SELECT count(*) AS n FROM l1 JOIN l2 ON l2.b = l1.b AND l2.c = l1.c JOIN l3 ON l3.c = l2.c AND l3.d = l2.d AND l3.a = l1.a JOIN l4 ON l4.d = l3.d AND l4.a = l1.a AND l4.b = l1.b;

-- with commas
SELECT count(*) AS n FROM l1, l2, l3, l4 WHERE l2.b = l1.b AND l2.c = l1.c AND l3.c = l1.c AND l3.d = l2.d AND l3.a = l1.a AND l4.d = l2.d AND l4.a = l3.a AND l4.b = l2.b;

-- with NATURAL joins
SELECT count(*) AS n FROM l1 NATURAL JOIN l2 NATURAL JOIN l3 NATURAL JOIN l4;

-- with rows
SELECT count(*) AS n FROM l1 JOIN l2 ON (l2.b, l2.c) = (l1.b, l1.c) JOIN l3 ON (l3.c, l3.d, l3.a) = (l1.c, l2.d, l1.a) JOIN l4 ON (l4.d, l4.a, l4.b) = (l2.d, l1.a, l1.b);

-- with a CTE
WITH p AS (SELECT a, b, c, d FROM l1 JOIN l2 USING (b, c)) SELECT count(*) AS n FROM p JOIN l3 USING (a, c, d) JOIN l4 USING (a, b, d);

-- as a scalar subquery
SELECT (SELECT count(*) FROM l1 JOIN l2 USING (b, c) JOIN l3 USING (c, d, a) JOIN l4 USING (d, a, b)) AS n;

-- with pairs in subqueries
SELECT count(*) AS n FROM (SELECT * FROM l1 NATURAL JOIN l2) AS p JOIN (SELECT * FROM l3 NATURAL JOIN l4) AS q USING (a, b, c, d);
