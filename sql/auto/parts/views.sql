-- The running example of papers/idivm.txt: devices and their parts.
-- tables: parts
-- quick: parts = 20000, fanout = 10, selectivity = 20, joins = 2, seed = 1
-- whole: parts = 100000, fanout = 10, selectivity = 20, joins = 2, seed = 1
-- update parts: price = price + 1
-- update devices: category = CASE WHEN category = 'phone' THEN 'tablet' ELSE 'phone' END
-- view: parts of phones, changes parts
SELECT did, pid, price FROM parts NATURAL JOIN devices_parts NATURAL JOIN devices WHERE category = 'phone'
-- view: cost of phones, changes parts
SELECT did, sum(price) AS cost
FROM parts NATURAL JOIN devices_parts NATURAL JOIN devices WHERE category = 'phone' GROUP BY did
-- view: cost of phones when devices change, changes devices
SELECT did, sum(price) AS cost
FROM parts NATURAL JOIN devices_parts NATURAL JOIN devices WHERE category = 'phone' GROUP BY did
