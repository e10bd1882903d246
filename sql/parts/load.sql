-- The running example: devices and the parts that they are made of. Every part is in as many
-- devices (the fanout) as every device has parts.
--
--   SET bench.parts = 100000;     parts, and as many devices
--   SET bench.fanout = 10;        parts of a device
--   SET bench.selectivity = 20;   per cent of the devices that are phones
--   SET bench.joins = 2;          above 2: tables r1, r2, ... that split devices_parts vertically
--   SET bench.seed = 1;

CREATE TABLE parts AS
SELECT n AS pid, (5 + hash % 99500 / 100.0)::numeric(12, 2) AS price
FROM generate_series(1, current_setting('bench.parts')::integer) AS n,
     LATERAL (SELECT hashint4extended(n, current_setting('bench.seed')::bigint) & x'7fffffff'::bigint AS hash) AS h;

CREATE TABLE devices AS
SELECT n AS did,
       CASE WHEN hash % 100 < current_setting('bench.selectivity')::integer THEN 'phone' ELSE 'tablet' END AS category
FROM generate_series(1, current_setting('bench.parts')::integer) AS n,
     LATERAL (SELECT hashint4extended(n, current_setting('bench.seed')::bigint + 1) & x'7fffffff'::bigint AS hash) AS h;

-- A step prime to the number of parts scatters a device's parts over the table and gives each part
-- the same number of devices.
CREATE TABLE devices_parts AS
SELECT n::integer AS did, (1 + (n * 48271 + k * (parts / fanout)) % parts)::integer AS pid
FROM (SELECT current_setting('bench.parts')::bigint, current_setting('bench.fanout')::bigint) AS p (parts, fanout),
     generate_series(1, parts) AS n,
     generate_series(0, fanout - 1) AS k;

ALTER TABLE parts ADD PRIMARY KEY (pid), ALTER price SET NOT NULL;
ALTER TABLE devices ADD PRIMARY KEY (did), ALTER category SET NOT NULL;
ALTER TABLE devices_parts ADD PRIMARY KEY (did, pid);
CREATE INDEX ON devices_parts (pid);
ALTER TABLE devices_parts ADD FOREIGN KEY (pid) REFERENCES parts, ADD FOREIGN KEY (did) REFERENCES devices;

DO $$
BEGIN
    FOR n IN 1 .. current_setting('bench.joins')::integer - 2 LOOP
        EXECUTE format('CREATE TABLE %I AS SELECT did, pid, did %% 7 + pid %% 11 AS %I FROM devices_parts',
                       'r' || n, 'a' || n);
        EXECUTE format('ALTER TABLE %I ADD PRIMARY KEY (did, pid),'
                       ' ADD FOREIGN KEY (did, pid) REFERENCES devices_parts', 'r' || n);
    END LOOP;
END $$;

-- The parts whose price the last change moved, as an application would know them.
CREATE TABLE changed (pid integer PRIMARY KEY, old_price numeric NOT NULL, price numeric NOT NULL);
