-- A graph of edges e(x, y) with weights, of which most belong to two hubs.
--
--   SET bench.rows = 100000;      edges, about
--
-- Hub 1 has an edge to each spoke, and each spoke an edge to hub 2 and to the next spoke. A quarter of the edges
-- are between random other nodes, four for each. So an edge between the hubs closes as many triangles and 4-cliques
-- as there are spokes. An edge from hub 2 to node 3, which has an edge to hub 1, closes as many 4-cycles.

CREATE TABLE e AS
WITH sizes AS MATERIALIZED (SELECT current_setting('bench.rows')::integer / 4 AS spokes)
SELECT x, y, (hashint8extended(x, y) & 15)::integer AS w
FROM sizes
CROSS JOIN LATERAL (
    SELECT 1 AS x, 100 + i AS y FROM generate_series(1, spokes) AS i
  UNION ALL
    SELECT 100 + i, 2 FROM generate_series(1, spokes) AS i
  UNION ALL
    SELECT 100 + i, 101 + i FROM generate_series(1, spokes - 1) AS i
  UNION ALL
    SELECT 3, 1
  UNION ALL
    SELECT DISTINCT 10000000 + (hashint8extended(i, 1) & 2147483647) % (spokes / 4),
           10000000 + (hashint8extended(i, 2) & 2147483647) % (spokes / 4)
    FROM generate_series(1, spokes) AS i
) AS edge;
ALTER TABLE e ADD PRIMARY KEY (x, y);
CREATE INDEX ON e (y, x);
