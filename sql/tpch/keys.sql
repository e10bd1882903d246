-- The specification's keys and foreign keys, with an index on every foreign key and on the dates by
-- which orders and their lines are looked for. A row takes along what refers to it.

-- Where there are few suppliers, the generator lets one offer a part twice.
DELETE FROM partsupp
WHERE ctid IN (
    SELECT ctid
    FROM (SELECT ctid, row_number() OVER (PARTITION BY ps_partkey, ps_suppkey ORDER BY ctid) FROM partsupp) AS p (ctid, nth)
    WHERE nth > 1
);

ALTER TABLE region ADD PRIMARY KEY (r_regionkey);
ALTER TABLE nation ADD PRIMARY KEY (n_nationkey);
ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey);
ALTER TABLE part ADD PRIMARY KEY (p_partkey);
ALTER TABLE partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey);
ALTER TABLE customer ADD PRIMARY KEY (c_custkey);
ALTER TABLE orders ADD PRIMARY KEY (o_orderkey);
ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber);

ALTER TABLE nation ADD FOREIGN KEY (n_regionkey) REFERENCES region ON DELETE CASCADE;
ALTER TABLE supplier ADD FOREIGN KEY (s_nationkey) REFERENCES nation ON DELETE CASCADE;
ALTER TABLE partsupp ADD FOREIGN KEY (ps_partkey) REFERENCES part ON DELETE CASCADE,
    ADD FOREIGN KEY (ps_suppkey) REFERENCES supplier ON DELETE CASCADE;
ALTER TABLE customer ADD FOREIGN KEY (c_nationkey) REFERENCES nation ON DELETE CASCADE;
ALTER TABLE orders ADD FOREIGN KEY (o_custkey) REFERENCES customer ON DELETE CASCADE;
ALTER TABLE lineitem ADD FOREIGN KEY (l_orderkey) REFERENCES orders ON DELETE CASCADE,
    ADD FOREIGN KEY (l_partkey, l_suppkey) REFERENCES partsupp ON DELETE CASCADE;

CREATE INDEX ON nation (n_regionkey);
CREATE INDEX ON supplier (s_nationkey);
CREATE INDEX ON partsupp (ps_suppkey);
CREATE INDEX ON customer (c_nationkey);
CREATE INDEX ON orders (o_custkey);
CREATE INDEX ON orders (o_orderdate);
CREATE INDEX ON lineitem (l_partkey, l_suppkey);
CREATE INDEX ON lineitem (l_suppkey);
CREATE INDEX ON lineitem (l_shipdate);
