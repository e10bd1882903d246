-- A graph of edges e(x, y) with weights, of which most belong to hubs.
--
--   SET bench.rows = 100000;      edges, about
--   SET bench.stars = 1;          1: with hubs 1 and 2; 0: with random edges in their place
--
-- Hub 1 has an edge to each of its spokes, and each of these spokes an edge to hub 2. So an edge from hub 2 to hub 1
-- closes as many triangles as there are spokes, and an edge from hub 2 to node 3, which has an edge to hub 1, as many
-- 4-cycles. Hubs 5 and 6 have fewer spokes in common, with an edge from each spoke to the next, so an edge from hub 5
-- to hub 6 closes a 4-clique with each of these edges. Other edges are between random nodes. (Without parts, the 4-cliques
-- of a graph with hubs 1 and 2 cannot be computed: the edges from hub 1 make very many pairs.)

CREATE TABLE e AS
WITH sizes AS MATERIALIZED (
    SELECT rows, rows * 3 / 8 * stars AS spokes, (2 * sqrt(rows))::integer AS links, rows - rows * 3 / 4 * stars AS others
    FROM (SELECT current_setting('bench.rows')::integer AS rows, current_setting('bench.stars')::integer AS stars) AS given
)
SELECT x, y, (hashint8extended(x, y) & 15)::integer AS w
FROM sizes
CROSS JOIN LATERAL (
    SELECT 1 AS x, 1000000 + i AS y FROM generate_series(1, spokes) AS i
  UNION ALL
    SELECT 1000000 + i, 2 FROM generate_series(1, spokes) AS i
  UNION ALL
    SELECT 3, 1
  UNION ALL
    SELECT 5, 2000000 + i FROM generate_series(1, links) AS i
  UNION ALL
    SELECT 2000000 + i, 6 FROM generate_series(1, links) AS i
  UNION ALL
    SELECT 2000000 + i, 2000001 + i FROM generate_series(1, links - 1) AS i
  UNION ALL
    SELECT DISTINCT 3000000 + (hashint8extended(i, 1) & 2147483647) % (others / 4),
           3000000 + (hashint8extended(i, 2) & 2147483647) % (others / 4)
    FROM generate_series(1, others) AS i
) AS edge;
ALTER TABLE e ADD PRIMARY KEY (x, y);
CREATE INDEX ON e (y, x);
