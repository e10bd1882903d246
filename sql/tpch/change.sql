-- One round of changes of all eight tables: of each a share is changed, half of it by updates, a
-- quarter by rows that go, a quarter by rows that come.
--
--   SET bench.round = 0;      -- rounds change different rows
--   SET bench.share = 0.01;   -- of the rows of a table

-- The specification's second refresh function: orders go, with their lines.
DELETE FROM orders
WHERE o_orderkey IN (
    SELECT o_orderkey
    FROM orders
    ORDER BY pick(o_orderkey, current_setting('bench.round')::integer, 1000000000)
    LIMIT (SELECT due(count(*), 0.25) FROM orders)
);

-- Parts go, with what is offered and was ordered of them; half as many, as their lines are many.
DELETE FROM part
WHERE p_partkey IN (
    SELECT p_partkey
    FROM part
    ORDER BY pick(p_partkey, 1000 + current_setting('bench.round')::integer, 1000000000)
    LIMIT (SELECT due(count(*), 0.125) FROM part)
);

-- The data has regions to 4 and nations to 24. What the last round added to them goes, with its
-- suppliers and customers; and customers who have not ordered.
DELETE FROM region WHERE r_regionkey > 4;
DELETE FROM nation WHERE n_nationkey > 24;
DELETE FROM customer
WHERE c_custkey IN (
    SELECT c_custkey
    FROM customer
    WHERE NOT EXISTS (SELECT FROM orders WHERE o_custkey = c_custkey)
    ORDER BY pick(c_custkey, 2000 + current_setting('bench.round')::integer, 1000000000)
    LIMIT (SELECT due(count(*), 0.25) FROM customer)
);

-- A region and a nation come, which lies in the new region or, in every other round, in an old one.
INSERT INTO region
SELECT 5 + round, 'REGION ' || round, 'new'
FROM (SELECT current_setting('bench.round')::integer) AS n (round);

INSERT INTO nation
SELECT 25 + round, 'NATION ' || round, CASE WHEN round % 2 = 0 THEN 5 + round ELSE round % 5 END, 'new'
FROM (SELECT current_setting('bench.round')::integer) AS n (round);

INSERT INTO supplier
SELECT last + n, 'Supplier#' || last + n, 'address ' || n, 25 + round, '10-' || last + n, n * 10.5, 'new'
FROM (SELECT max(s_suppkey), count(*) FROM supplier) AS s (last, total),
     (SELECT current_setting('bench.round')::integer) AS r (round),
     LATERAL generate_series(1, greatest(1, due(total, 0.25))) AS n;

INSERT INTO part
SELECT last + row_number() OVER (ORDER BY p_partkey), p_name, p_mfgr, p_brand, p_type, p_size, p_container,
       p_retailprice + 1, p_comment
FROM (SELECT max(p_partkey), count(*) FROM part) AS t (last, total),
     LATERAL (
         SELECT *
         FROM part
         ORDER BY pick(p_partkey, 3000 + current_setting('bench.round')::integer, 1000000000)
         LIMIT due(total, 0.125)
     ) AS model;

-- The new suppliers offer some parts, and others offer those that nobody did.
INSERT INTO partsupp
SELECT p_partkey, s_suppkey, 100 + pick(p_partkey, 1, 9000), 1 + pick(p_partkey, 2, 99900) / 100.0, 'new'
FROM supplier,
     LATERAL (
         SELECT p_partkey
         FROM part
         ORDER BY pick(p_partkey, s_suppkey, 1000000000)
         LIMIT 1 + (SELECT due(count(*), 0.125) FROM partsupp) / (SELECT count(*) FROM supplier WHERE s_nationkey > 24)
     ) AS offered
WHERE s_nationkey > 24
UNION ALL
SELECT p_partkey, s_suppkey, 100 + pick(p_partkey, s_suppkey, 9000), 1 + pick(p_partkey, s_suppkey, 99900) / 100.0, 'new'
FROM part,
     LATERAL (
         SELECT s_suppkey
         FROM supplier
         WHERE s_nationkey <= 24
         ORDER BY pick(s_suppkey, p_partkey, 1000000000)
         LIMIT 4
     ) AS offering
WHERE NOT EXISTS (SELECT FROM partsupp WHERE ps_partkey = p_partkey)
ON CONFLICT DO NOTHING;

INSERT INTO customer
SELECT last + n, 'Customer#' || last + n, 'address ' || n,
       CASE WHEN n = 1 THEN 25 + round ELSE pick(last + n, 3, 25) END,
       10 + pick(last + n, 4, 25) || '-' || last + n, pick(last + n, 5, 999999) / 100.0,
       (ARRAY['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY'])[1 + pick(last + n, 6, 5)], 'new'
FROM (SELECT max(c_custkey), count(*) FROM customer) AS c (last, total),
     (SELECT current_setting('bench.round')::integer) AS r (round),
     LATERAL generate_series(1, greatest(1, due(total, 0.25))) AS n;

-- The specification's first refresh function: orders come, with lines. Some are the first of their
-- customers, and some lines go to the new suppliers.
WITH model AS (
    SELECT *, row_number() OVER (ORDER BY o_orderkey) AS n
    FROM orders
    WHERE o_orderkey IN (
        SELECT o_orderkey
        FROM orders
        ORDER BY pick(o_orderkey, 4000 + current_setting('bench.round')::integer, 1000000000)
        LIMIT (SELECT greatest(1, due(count(*), 0.25)) FROM orders)
    )
),
added AS (
    INSERT INTO orders
    SELECT (SELECT max(o_orderkey) FROM orders) + n,
           CASE WHEN n % 4 = 1 THEN (SELECT max(c_custkey) FROM customer) ELSE o_custkey END,
           o_orderstatus, o_totalprice + pick(o_orderkey, 7, 10000) / 100.0,
           o_orderdate + pick(o_orderkey, 8, 10)::integer, o_orderpriority, o_clerk, o_shippriority, o_comment
    FROM model
),
newest AS (
    SELECT ps_partkey, ps_suppkey
    FROM partsupp JOIN supplier ON s_suppkey = ps_suppkey
    WHERE s_nationkey > 24
    ORDER BY ps_partkey, ps_suppkey
    LIMIT 1
)
INSERT INTO lineitem
SELECT (SELECT max(o_orderkey) FROM orders) + n,
       CASE WHEN l_linenumber = 1 AND n % 4 = 1 THEN ps_partkey ELSE l_partkey END,
       CASE WHEN l_linenumber = 1 AND n % 4 = 1 THEN ps_suppkey ELSE l_suppkey END,
       l_linenumber, l_quantity, l_extendedprice + pick(l_orderkey, l_linenumber, 10000) / 100.0, l_discount, l_tax,
       l_returnflag, l_linestatus, l_shipdate + shift, l_commitdate + shift, l_receiptdate + shift,
       l_shipinstruct, l_shipmode, l_comment
FROM model JOIN lineitem ON l_orderkey = o_orderkey,
     newest,
     LATERAL (SELECT pick(o_orderkey, 8, 10)::integer) AS s (shift);

-- Prices and quantities of lines change; and others are shipped again.
UPDATE lineitem
SET l_quantity = 1 + (l_quantity + 7) % 50, l_extendedprice = l_extendedprice + 10.25,
    l_discount = (l_discount + 0.01) % 0.11
WHERE (l_orderkey, l_linenumber) IN (
    SELECT l_orderkey, l_linenumber
    FROM lineitem
    ORDER BY pick(8 * l_orderkey + l_linenumber, 5000 + current_setting('bench.round')::integer, 1000000000)
    LIMIT (SELECT due(count(*), 0.25) FROM lineitem)
);

UPDATE lineitem
SET l_shipdate = l_shipdate + 1, l_receiptdate = l_commitdate + (pick(l_orderkey, l_linenumber, 21) - 10)::integer,
    l_linestatus = CASE l_linestatus WHEN 'O' THEN 'F' ELSE 'O' END,
    l_returnflag = CASE l_returnflag WHEN 'N' THEN 'R' WHEN 'R' THEN 'A' ELSE 'N' END,
    l_shipmode = CASE l_shipmode WHEN 'MAIL' THEN 'AIR' WHEN 'AIR' THEN 'SHIP' ELSE 'MAIL' END
WHERE (l_orderkey, l_linenumber) IN (
    SELECT l_orderkey, l_linenumber
    FROM lineitem
    ORDER BY pick(8 * l_orderkey + l_linenumber, 6000 + current_setting('bench.round')::integer, 1000000000)
    LIMIT (SELECT due(count(*), 0.25) FROM lineitem)
);

UPDATE orders
SET o_orderstatus = CASE o_orderstatus WHEN 'O' THEN 'F' ELSE 'O' END, o_totalprice = o_totalprice + 1.25,
    o_orderdate = o_orderdate + 1,
    o_orderpriority = (ARRAY['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'])[1 + pick(o_orderkey, 9, 5)],
    o_comment = CASE WHEN o_comment LIKE '%special%requests%' THEN 'none' ELSE 'special requests' END
WHERE o_orderkey IN (
    SELECT o_orderkey
    FROM orders
    ORDER BY pick(o_orderkey, 7000 + current_setting('bench.round')::integer, 1000000000)
    LIMIT (SELECT due(count(*), 0.5) FROM orders)
);

UPDATE customer
SET c_acctbal = c_acctbal + 100.5, c_address = reverse(c_address), c_nationkey = (c_nationkey + 1) % 25,
    c_phone = 10 + (c_nationkey + 1) % 25 || substr(c_phone, 3),
    c_mktsegment = CASE c_mktsegment WHEN 'BUILDING' THEN 'MACHINERY' ELSE 'BUILDING' END
WHERE c_custkey IN (
    SELECT c_custkey
    FROM customer
    WHERE c_nationkey <= 24
    ORDER BY pick(c_custkey, 8000 + current_setting('bench.round')::integer, 1000000000)
    LIMIT (SELECT due(count(*), 0.5) FROM customer)
);

UPDATE part
SET p_size = 1 + (p_size + 7) % 50, p_retailprice = p_retailprice + 0.5,
    p_name = CASE WHEN p_name LIKE '%green%' THEN 'forest chocolate' ELSE 'green ivory' END,
    p_type = CASE WHEN p_type LIKE 'PROMO%' THEN 'ECONOMY ANODIZED STEEL' ELSE 'PROMO PLATED BRASS' END,
    p_brand = CASE p_brand WHEN 'Brand#23' THEN 'Brand#12' ELSE 'Brand#23' END,
    p_container = CASE p_container WHEN 'MED BOX' THEN 'SM BOX' ELSE 'MED BOX' END
WHERE p_partkey IN (
    SELECT p_partkey
    FROM part
    ORDER BY pick(p_partkey, 9000 + current_setting('bench.round')::integer, 1000000000)
    LIMIT (SELECT due(count(*), 0.5) FROM part)
);

UPDATE partsupp
SET ps_supplycost = 1 + (ps_supplycost + 123.45) % 1000, ps_availqty = 1 + (ps_availqty + 1234) % 9999
WHERE (ps_partkey, ps_suppkey) IN (
    SELECT ps_partkey, ps_suppkey
    FROM partsupp
    ORDER BY pick(ps_partkey, ps_suppkey + current_setting('bench.round')::integer, 1000000000)
    LIMIT (SELECT due(count(*), 0.5) FROM partsupp)
);

UPDATE supplier
SET s_acctbal = s_acctbal + 10.75, s_nationkey = (s_nationkey + 1) % 25,
    s_comment = CASE WHEN s_comment LIKE '%Customer%Complaints%' THEN 'none' ELSE 'Customer Complaints' END
WHERE s_suppkey IN (
    SELECT s_suppkey
    FROM supplier
    WHERE s_nationkey <= 24
    ORDER BY pick(s_suppkey, 10000 + current_setting('bench.round')::integer, 1000000000)
    LIMIT (SELECT due(count(*), 0.5) FROM supplier)
);

-- A nation changes to the next region, and two regions their names.
UPDATE nation
SET n_regionkey = (n_regionkey + 1) % 5, n_comment = 'moved'
WHERE n_nationkey IN (
    SELECT n_nationkey
    FROM nation
    WHERE n_nationkey <= 24
    ORDER BY pick(n_nationkey, 11000 + current_setting('bench.round')::integer, 1000000000)
    LIMIT (SELECT due(count(*), 1) FROM nation WHERE n_nationkey <= 24)
);

WITH chosen AS (
    SELECT r_regionkey, r_name
    FROM region
    WHERE r_regionkey <= 4
    ORDER BY pick(r_regionkey, 12000 + current_setting('bench.round')::integer, 1000000000)
    LIMIT (SELECT 2 * least(1, due(count(*), 1)) FROM region WHERE r_regionkey <= 4)
)
UPDATE region
SET r_name = other.r_name
FROM chosen JOIN chosen AS other ON other.r_regionkey <> chosen.r_regionkey
WHERE region.r_regionkey = chosen.r_regionkey
