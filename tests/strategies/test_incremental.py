"""Every operator under every kind of change, by every incremental strategy, against the oracle."""

from __future__ import annotations

import pytest

from orchestrator.deltascript import sizes
from orchestrator.deltascript.plan import StateTable
from orchestrator.engine import split_joins
from orchestrator.errors import UnsupportedError, UsageError
from orchestrator.strategies.idiff.rules import recursive as recursion

TABLES = """
CREATE TABLE parts (pid int PRIMARY KEY, price numeric, kind text);
CREATE TABLE devices (did int PRIMARY KEY, category text, parent int);
CREATE TABLE devices_parts (did int, pid int, n int, PRIMARY KEY (did, pid));
INSERT INTO parts SELECT g, CASE WHEN g % 7 > 0 THEN g * 1.50 END, 'k' || g % 3 FROM generate_series(1, 20) AS g;
INSERT INTO devices SELECT g, CASE g % 3 WHEN 0 THEN 'phone' WHEN 1 THEN 'tablet' END, g / 2
FROM generate_series(1, 12) AS g;
INSERT INTO devices_parts SELECT DISTINCT ON (d, p) d, p, g
FROM generate_series(1, 60) AS g, LATERAL (VALUES (1 + g * 5 % 12, 1 + g * 7 % 20)) AS v (d, p);
CREATE TABLE visits (did int, what text, n numeric);
INSERT INTO visits SELECT 1 + g % 5, CASE WHEN g % 3 > 0 THEN 'w' || g % 2 END, g % 4 FROM generate_series(1, 24) AS g
"""

VIEWS = {
    "spj": "SELECT did, pid, price FROM parts JOIN devices_parts USING (pid) JOIN devices USING (did)"
    " WHERE category = 'phone'",
    "bag": "SELECT price FROM parts JOIN devices_parts USING (pid)",
    "twice": "SELECT price AS a, price AS b, pid FROM parts",
    "computed": "SELECT d.did, p.price * dp.n AS cost, upper(p.kind) AS kind FROM parts p"
    " JOIN devices_parts dp ON dp.pid = p.pid AND dp.n > p.pid JOIN devices d ON d.did = dp.did",
    "self": "SELECT a.did, b.did AS child, b.category FROM devices a JOIN devices b ON b.parent = a.did",
    "self_keyed": "SELECT a.did, b.did AS sibling FROM devices a JOIN devices b ON a.parent = b.parent WHERE b.did > 6",
    "theta": "SELECT a.pid, b.pid AS dearer FROM parts a JOIN parts b ON a.price < b.price AND a.kind = b.kind",
    "round": "SELECT a.did, p.price, dq.n, b.category FROM devices a JOIN devices_parts dp USING (did)"
    " JOIN parts p ON p.pid = dp.pid JOIN devices_parts dq ON dq.pid = p.pid"
    " JOIN devices b ON b.did = dq.did AND b.parent < dp.n + dq.n",
    "cycle": "SELECT a.did, sum(x.n) AS n FROM devices a JOIN devices_parts x ON x.did = a.did"
    " JOIN devices_parts y ON y.pid = x.pid JOIN devices b ON b.did = y.did AND b.parent = a.parent GROUP BY a.did",
    "cross": "SELECT p.pid, d.did FROM parts p, devices d WHERE p.price > 20 AND d.category IS NULL",
    "parents": "SELECT a.did, b.category FROM devices a JOIN devices b ON b.did = a.parent WHERE a.category = 'phone'",
    "parents_of_some": "SELECT a.did, b.category FROM devices a JOIN devices b ON b.did = a.parent"
    " WHERE EXISTS (SELECT FROM devices_parts dp WHERE dp.did = a.did AND dp.n > 30)",
    "branches": "SELECT pid AS id, kind FROM parts WHERE price > 10 UNION ALL SELECT did, category FROM devices",
    "sums": "SELECT did, sum(price) AS cost, count(*) AS n, avg(price) AS mean, count(price) AS priced"
    " FROM parts JOIN devices_parts USING (pid) GROUP BY did",
    "sums_of_two": "SELECT n / 20 AS tens, sum(p.price * 2) AS cost, sum(d.parent) AS parents, count(p.price) FILTER"
    " (WHERE kind = 'k1') AS n FROM parts p JOIN devices_parts USING (pid) JOIN devices d USING (did) GROUP BY 1",
    "null_groups": "SELECT category, count(*) AS n, sum(did) AS s, avg(did) AS a FROM devices GROUP BY category",
    "whole": "SELECT count(*) AS n, sum(price) AS s, avg(n) AS a, sum(n) FILTER (WHERE kind = 'k1') AS f"
    " FROM parts JOIN devices_parts USING (pid)",
    "extremes": "SELECT kind, min(price) AS least, max(price) AS most, string_agg(pid::text, ',' ORDER BY pid) AS all"
    " FROM parts GROUP BY kind",
    "extremes_and_values": "SELECT kind, min(price) AS least, max(pid) AS last, count(DISTINCT price) AS prices,"
    " count(DISTINCT pid % 3) FILTER (WHERE price > 5) AS some, sum(DISTINCT pid % 4) AS s, avg(DISTINCT pid % 3) AS a,"
    " bool_or(DISTINCT price > 20) AS b, sum(price) AS total, max(DISTINCT price) FILTER (WHERE pid > 4) AS most"
    " FROM parts GROUP BY kind",
    "floats": "SELECT category, sum(price::float8) AS s, avg(price::float8) AS a, var_pop(price::float8) AS v,"
    " stddev(n::real) AS d, avg(n::real) FILTER (WHERE n > 10) AS f, count(DISTINCT price::float8) AS c"
    " FROM parts JOIN devices_parts USING (pid) JOIN devices USING (did) GROUP BY category",
    "values_of_numbers": "SELECT n, count(DISTINCT did) AS d, max(what) AS w FROM visits GROUP BY n",
    "values_whole": "SELECT count(DISTINCT what) AS w, max(n) AS m, min(what) AS l FROM visits",
    "values_joined": "SELECT did, max(price) AS m, min(kind) AS k, count(DISTINCT kind) AS c"
    " FROM parts JOIN devices_parts USING (pid) GROUP BY did",
    "values_below": "SELECT m, count(*) AS c FROM (SELECT did, max(n) AS m, count(DISTINCT pid % 4) AS d"
    " FROM devices_parts GROUP BY did) AS q GROUP BY m",
    "extreme": "SELECT max(price) AS most, bool_or(kind = 'k1') AS any FROM parts",
    "having": "SELECT kind, sum(price) AS s FROM parts GROUP BY kind HAVING sum(price) > 60",
    "nested": "SELECT n, count(*) AS devices FROM (SELECT did, count(*) AS n FROM devices_parts GROUP BY did) AS q"
    " GROUP BY n",
    "joined_groups": "SELECT d.did, d.category, q.cost FROM devices d JOIN (SELECT did, sum(price) AS cost"
    " FROM parts JOIN devices_parts USING (pid) GROUP BY did) AS q ON q.did = d.did AND q.cost > 15",
    "distinct": "SELECT DISTINCT category, kind FROM devices JOIN devices_parts USING (did) JOIN parts USING (pid)",
    "left": "SELECT d.did, d.category, dp.pid, dp.n FROM devices d LEFT JOIN devices_parts dp"
    " ON dp.did = d.did AND dp.n > 20",
    "left_groups": "SELECT d.category, count(dp.pid) AS n FROM devices d LEFT JOIN devices_parts dp USING (did)"
    " GROUP BY d.category",
    "left_of_some": "SELECT p.pid, p.kind, dp.did, dp.n FROM parts p LEFT JOIN (SELECT * FROM devices_parts WHERE n > 15)"
    " AS dp ON dp.pid = p.pid AND dp.n > p.price",
    "left_of_groups": "SELECT p.pid, q.did, q.s FROM parts p LEFT JOIN (SELECT did, sum(n) AS s FROM devices_parts"
    " GROUP BY did) AS q ON q.s > p.price AND q.did > p.pid",
    "left_of_one": "SELECT p.pid, q.total FROM parts p LEFT JOIN (SELECT sum(n) AS total, max(n) AS most FROM devices_parts)"
    " AS q ON q.most > p.price * 4",
    "left_twice": "SELECT p.pid, p.price, dp.did, d.category FROM parts p LEFT JOIN devices_parts dp USING (pid)"
    " LEFT JOIN devices d ON d.did = dp.did AND d.category = 'phone'",
    "some": "SELECT pid, kind FROM parts p WHERE EXISTS (SELECT FROM devices_parts dp WHERE dp.pid = p.pid AND dp.n > 30)",
    "none": "SELECT pid, kind FROM parts p WHERE NOT EXISTS (SELECT FROM devices_parts dp WHERE dp.pid = p.pid AND dp.n > 30)",
    "none_joined": "SELECT p.pid, p.price, d.did FROM parts p JOIN devices d ON d.did = p.pid"
    " WHERE NOT EXISTS (SELECT FROM devices_parts dp JOIN parts q ON q.pid = dp.pid"
    " WHERE dp.did = d.did AND q.price > 25)",
    "ranked": "SELECT pid, kind, rank() OVER (PARTITION BY kind ORDER BY price DESC) AS place,"
    " sum(price) OVER (PARTITION BY kind ORDER BY price) AS running FROM parts",
    "numbered": "SELECT did, pid, row_number() OVER (PARTITION BY did ORDER BY price) AS n,"
    " lag(price) OVER (PARTITION BY did ORDER BY pid) AS before FROM parts JOIN devices_parts USING (pid)",
    "frames": "SELECT pid, sum(price) OVER w AS near, count(*) OVER (PARTITION BY kind) AS alike FROM parts"
    " WINDOW w AS (PARTITION BY kind ORDER BY price ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "running": "SELECT pid, kind, price, row_number() OVER (PARTITION BY kind ORDER BY pid) AS n,"
    " sum(pid) OVER (PARTITION BY kind ORDER BY pid DESC) AS s, lag(price) OVER (PARTITION BY kind ORDER BY pid) AS l,"
    " lead(price, 2) OVER (PARTITION BY kind ORDER BY pid) AS m FROM parts",
    "running_nulls": "SELECT pid, dense_rank() OVER (ORDER BY price DESC) AS d, rank() OVER (ORDER BY price DESC NULLS LAST) AS r,"
    " count(*) OVER (ORDER BY price NULLS FIRST) AS c, rank() OVER (PARTITION BY kind ORDER BY price DESC) AS q,"
    " max(price) OVER (ORDER BY pid) AS m, first_value(kind) OVER (ORDER BY pid) AS f FROM parts",
    "running_pairs": "SELECT did, pid, n, row_number() OVER (ORDER BY n, did, pid) AS r, lead(n) OVER (PARTITION BY did"
    " ORDER BY pid DESC) AS e, sum(n) OVER (PARTITION BY pid ORDER BY did ROWS UNBOUNDED PRECEDING) AS s,"
    " count(n) FILTER (WHERE n > 20) OVER (ORDER BY did) AS c FROM devices_parts",
    "running_devices": "SELECT did, rank() OVER (PARTITION BY category ORDER BY parent NULLS FIRST, did) AS r, row_number() OVER"
    " (PARTITION BY category ORDER BY parent DESC, did) AS n, lag(did, 2, -1) OVER (ORDER BY did) AS l,"
    " bool_or(parent > 3) OVER (ORDER BY parent NULLS FIRST) AS b FROM devices",
    "unpartitioned": "SELECT pid, dense_rank() OVER (ORDER BY price NULLS FIRST) AS place FROM parts",
    "null_partitions": "SELECT did, category, rank() OVER (PARTITION BY category ORDER BY parent DESC) AS place"
    " FROM devices",
    "ranked_groups": "SELECT kind, count(*) AS n, rank() OVER (ORDER BY count(*)) AS place FROM parts GROUP BY kind",
    "first_of_window": "SELECT * FROM (SELECT did, pid, price, row_number() OVER (PARTITION BY did ORDER BY price, pid)"
    " AS n FROM parts JOIN devices_parts USING (pid)) AS q WHERE n <= 2",
    "grouped_windows": "SELECT place, count(*) AS n FROM (SELECT rank() OVER (PARTITION BY kind ORDER BY price)"
    " AS place FROM parts) AS q GROUP BY place",
    "one_each": "SELECT DISTINCT ON (kind) kind, pid, price FROM parts ORDER BY kind, price DESC NULLS LAST",
    "one_of_nulls": "SELECT DISTINCT ON (category) did, category, pid FROM devices LEFT JOIN devices_parts USING (did)",
    "one_hidden": "SELECT DISTINCT ON (category, kind) price FROM devices JOIN devices_parts USING (did)"
    " JOIN parts USING (pid) ORDER BY kind, category, n",
    "dearest": "SELECT pid, price FROM parts ORDER BY price DESC LIMIT 3",
    "next_dearest": "SELECT did, pid, price FROM parts JOIN devices_parts USING (pid)"
    " ORDER BY price DESC NULLS LAST, did, pid LIMIT 4 OFFSET 2",
    "ties": "SELECT pid, kind, price FROM parts ORDER BY kind DESC, price FETCH FIRST 2 ROWS WITH TIES",
    "all_but_first": "SELECT pid FROM parts ORDER BY price, pid OFFSET 3",
    "no_order": "SELECT did, category FROM devices LIMIT 5",
    "none_at_all": "SELECT pid FROM parts ORDER BY pid LIMIT 0",
    "all_in_order": "SELECT pid FROM parts ORDER BY price, pid LIMIT ALL OFFSET 0",
    "some_for_each": "SELECT d.did, q.pid FROM devices d, LATERAL (SELECT pid FROM parts p WHERE p.pid <> d.did"
    " ORDER BY pid LIMIT d.parent) AS q",
    "a_row_if_a_column_says_so": "SELECT d.did, q.x, r.y FROM devices d JOIN LATERAL (SELECT d.parent + 1 AS x) AS q ON true"
    " JOIN LATERAL (SELECT q.x * 2 AS y WHERE d.category <> 'phone') AS r ON true",
    "a_row_if_another_table_says_so": "SELECT d.did, q.x FROM devices d JOIN LATERAL (SELECT d.parent AS x WHERE EXISTS"
    " (SELECT FROM parts p WHERE p.pid = d.did AND p.kind = 'k1')) AS q ON true",
    "a_row_or_nulls": "SELECT d.did, q.x FROM devices d LEFT JOIN LATERAL (SELECT d.did AS x WHERE d.parent > 2) AS q ON true",
    "one_or_none": "SELECT d.did, q.x FROM devices d, LATERAL (SELECT d.did + 1 AS x OFFSET greatest(d.parent - 2, 0)) AS q,"
    " LATERAL (SELECT count(*) FROM parts LIMIT 2) AS r",
    "different_sets": "SELECT kind, pid, pid % 4 AS rest, count(*) AS n FROM parts"
    " GROUP BY DISTINCT ROLLUP (kind, pid), ROLLUP (kind, pid % 4)",
    "top_groups": "SELECT kind, sum(price) AS s FROM parts GROUP BY kind ORDER BY sum(price) DESC NULLS LAST LIMIT 2",
    "above_top": "SELECT d.did, q.pid FROM devices d LEFT JOIN (SELECT pid FROM parts ORDER BY price LIMIT 6) AS q"
    " ON q.pid = d.did",
    "rows_as_values": "SELECT d.did, to_jsonb(d) AS d, (SELECT json_agg(q ORDER BY q.n, q.pid)::text FROM (SELECT dp.pid, dp.n"
    " FROM devices_parts dp WHERE dp.did = d.did) AS q) AS parts FROM devices d",
    "rows_or_none": "SELECT p.pid, to_jsonb(d) AS d, count(d) AS n, jsonb_agg(dp ORDER BY dp.did) FILTER (WHERE dp.n > 9)"
    " AS ds FROM parts p LEFT JOIN devices_parts dp USING (pid) LEFT JOIN devices d ON d.did = p.pid GROUP BY p.pid, d.did",
    "visited": "SELECT what, n FROM visits WHERE did > 1",
    "visited_devices": "SELECT v.what, d.category FROM visits v JOIN devices d USING (did)",
    "visits_twice": "SELECT a.n FROM visits a JOIN visits b ON a.what = b.what AND a.did = b.did",
    "visit_counts": "SELECT what, count(*) AS c, sum(n) AS s FROM visits GROUP BY what",
    "visits_whole": "SELECT count(*) AS c FROM visits",
    "visit_kinds": "SELECT DISTINCT v.what, d.category FROM visits v JOIN devices d USING (did)",
    "visit_extremes": "SELECT did, max(what) AS w, min(n) AS n FROM visits GROUP BY did",
    "visits_or_not": "SELECT d.did, v.what FROM devices d LEFT JOIN visits v ON v.did = d.did AND v.n > 1",
    "visited_once": "SELECT did, category FROM devices d WHERE EXISTS (SELECT FROM visits v WHERE v.did = d.did AND v.n = 2)",
    "visits_of_none": "SELECT what, n FROM visits v WHERE NOT EXISTS (SELECT FROM devices d WHERE d.did = v.did)",
    "visits_evaluated": "SELECT d.did, (SELECT string_agg(v.what, ',' ORDER BY v.what) FROM visits v WHERE v.did = d.did"
    " AND v.n > 1) AS whats, d.did IN (SELECT v.n FROM visits v WHERE v.did = d.parent) AS again FROM devices d",
    "visits_beside": "SELECT what FROM visits UNION ALL SELECT category FROM devices",
    "visits_ranked": "SELECT did, rank() OVER (PARTITION BY what ORDER BY n) AS place FROM visits",
    "ancestors": "WITH RECURSIVE r (a, b) AS (SELECT did, parent FROM devices UNION SELECT r.a, d.parent FROM r"
    " JOIN devices d ON d.did = r.b) SELECT a, b FROM r",
    "ancestor_counts": "WITH RECURSIVE r AS (SELECT did, parent, category FROM devices WHERE did > 2 UNION"
    " SELECT r.did, d.parent, r.category FROM r, devices d WHERE d.did = r.parent AND d.parent > 0)"
    " SELECT category, count(*) AS n FROM r GROUP BY category",
    "visit_steps": "WITH RECURSIVE r (n) AS (SELECT n FROM visits WHERE did = 1 UNION SELECT v.n FROM r JOIN visits v"
    " ON v.did = r.n) SELECT n > 1 AS more, count(*) AS c FROM r GROUP BY 1",
    "descendants": "WITH RECURSIVE r AS (SELECT did, category, 1 AS far FROM devices WHERE parent = 1 UNION ALL"
    " SELECT d.did, coalesce(d.category, r.category), r.far + 1 FROM r JOIN devices d ON d.parent = r.did WHERE r.far < 4)"
    " SELECT did, category, far FROM r",
    "descendant_counts": "WITH RECURSIVE r (top, did, n) AS (SELECT did, did, 0 FROM devices UNION ALL SELECT r.top, d.did, r.n + dp.n"
    " FROM r JOIN devices d ON d.parent = r.did JOIN devices_parts dp ON dp.did = d.did WHERE r.n < 40)"
    " SELECT d.category, count(*) AS c, sum(n) AS n FROM r JOIN devices d ON d.did = r.top GROUP BY d.category",
    "visit_paths": "WITH RECURSIVE r AS (SELECT did, what, n, 0 AS far FROM visits UNION ALL SELECT v.did, v.what, v.n, r.far + 1"
    " FROM visits v JOIN r ON v.did = r.n AND v.what > r.what WHERE r.far < 2) SELECT what, n, far FROM r",
    "reached_pairs": "WITH RECURSIVE r (a, b) AS (SELECT did, parent FROM devices WHERE did < 4 UNION SELECT r.a, e.parent FROM r"
    " JOIN devices d ON d.did = r.b JOIN devices e ON e.did = d.parent) SELECT a, count(*) AS n FROM r GROUP BY a",
    "leaves_left_out": "WITH RECURSIVE r (a) AS (SELECT did FROM devices WHERE did < 3 UNION SELECT d.did FROM r JOIN devices d"
    " ON d.parent = r.a WHERE EXISTS (SELECT FROM devices_parts dp WHERE dp.did = d.did)) SELECT a FROM r",
    "sorted": "SELECT pid, price FROM parts WHERE kind <> 'k0' ORDER BY price",
    "spread": "SELECT p.kind, var_samp(n) AS v, variance(n) FILTER (WHERE n > 20) AS f, var_pop(p.pid) AS p,"
    " bool_and(n > 5) AS every, bool_or(price > 20) AS some FROM parts p JOIN devices_parts USING (pid) GROUP BY p.kind",
    "spread_whole": "SELECT var_pop(n) AS p, var_samp(n) AS s, stddev(n) AS d, bool_or(n > 40) AS some FROM devices_parts",
    "spread_numeric": "SELECT kind, stddev(price::numeric(9, 2)) AS d, var_pop(price::numeric(9, 2)) AS v, stddev_pop(x) AS p,"
    " variance(x) FILTER (WHERE pid > 5) AS f FROM (SELECT *, price / (1 + pid % 3) * 1.10 AS x FROM parts) AS p GROUP BY kind",
    "full": "SELECT p.pid, p.price, d.did, d.category FROM parts p FULL JOIN devices d ON d.parent = p.pid",
    "full_using": "SELECT pid, p.kind, dp.n FROM parts p FULL JOIN devices_parts dp USING (pid) WHERE pid < 25",
    "full_groups": "SELECT a.k, a.s, b.n FROM (SELECT kind AS k, sum(price) AS s FROM parts GROUP BY kind) AS a"
    " FULL JOIN (SELECT category AS k, count(*) AS n FROM devices GROUP BY category) AS b ON a.k = b.k",
    "union": "SELECT pid AS id, kind FROM parts UNION SELECT parent, category FROM devices",
    "except": "SELECT pid FROM parts EXCEPT SELECT pid FROM devices_parts WHERE n > 20",
    "except_all": "SELECT kind FROM parts EXCEPT ALL SELECT 'k' || n % 3 FROM devices_parts WHERE n > 40",
    "intersect": "SELECT pid, kind FROM parts INTERSECT SELECT parent, 'k1' FROM devices",
    "intersect_all": "SELECT kind FROM parts INTERSECT ALL SELECT 'k' || n % 4 FROM devices_parts WHERE n > 20",
    "rollup": "SELECT category, parent, grouping(category, parent) AS g, count(*) AS n, sum(did) AS s FROM devices"
    " GROUP BY ROLLUP (category, parent)",
    "cube": "SELECT kind, category, sum(price) AS s FROM parts JOIN devices_parts USING (pid) JOIN devices USING (did)"
    " GROUP BY CUBE (kind, category) HAVING count(*) > 1",
    "sets": "SELECT kind, pid % 2 AS odd, grouping(pid % 2, kind) AS g, max(price) AS m FROM parts"
    " GROUP BY GROUPING SETS ((kind), (pid % 2), (kind))",
    "above_average": "SELECT pid, price FROM parts WHERE price > (SELECT avg(price) FROM parts)",
    "alike_totals": "SELECT 'A'::text AS t FROM (SELECT max(n) AS m FROM devices_parts) AS a CROSS JOIN (SELECT avg(did)"
    " AS p FROM devices) AS b JOIN (SELECT 2 * max(n) - max(n) AS m FROM devices_parts) AS c ON a.m = c.m",
    "against_total": "SELECT pid, price / (SELECT sum(n) FROM devices_parts WHERE n > 10) AS part FROM parts",
    "having_total": "SELECT kind, sum(price) AS s FROM parts GROUP BY kind HAVING sum(price) > (SELECT sum(price) * 0.3 FROM parts)",
    "counted": "SELECT d.did, (SELECT count(*) FROM devices_parts dp WHERE dp.did = d.did) AS n,"
    " (SELECT sum(n) + 1 FROM devices_parts dp WHERE dp.did = d.did AND n > 10) AS s FROM devices d",
    "greatest": "SELECT p.pid, (SELECT max(n) FROM devices_parts dp WHERE dp.pid = p.pid) AS most FROM parts p",
    "less_than_average": "SELECT sum(p.price) AS s FROM parts p JOIN devices_parts dp USING (pid)"
    " WHERE dp.n < (SELECT 0.9 * avg(q.n) FROM devices_parts q WHERE q.pid = p.pid)",
    "least": "SELECT p.pid, dp.did FROM parts p JOIN devices_parts dp USING (pid) WHERE dp.n ="
    " (SELECT min(q.n) FROM devices_parts q JOIN devices d USING (did) WHERE q.pid = p.pid AND d.category = 'phone')",
    "found": "SELECT d.did, (SELECT p.did FROM devices p WHERE p.did = d.parent) AS above,"
    " (SELECT upper(p.category) FROM devices p WHERE p.did = d.parent) AS category FROM devices d",
    "either": "SELECT pid FROM parts p WHERE p.price < 6 OR EXISTS (SELECT FROM devices_parts dp WHERE dp.pid = p.pid AND dp.n > 40)",
    "shown_test": "SELECT pid, NOT EXISTS (SELECT FROM devices d WHERE d.parent = p.pid) AS leaf,"
    " p.pid IN (SELECT parent FROM devices) AS inner FROM parts p",
    "not_in": "SELECT did FROM devices WHERE parent NOT IN (SELECT pid FROM parts WHERE price > 10)",
    "not_in_null": "SELECT pid FROM parts WHERE kind NOT IN (SELECT category FROM devices WHERE did > 4)",
    "not_in_correlated": "SELECT pid FROM parts p WHERE kind NOT IN (SELECT category FROM devices d WHERE d.parent = p.pid)",
    "pairs_in": "SELECT did, pid, (did, n) NOT IN (SELECT parent, did FROM devices) AS free FROM devices_parts",
    "all": "SELECT pid FROM parts p WHERE price >= ALL (SELECT q.price FROM parts q WHERE q.kind = p.kind)",
    "any": "SELECT pid FROM parts p WHERE price > ANY (SELECT n FROM devices_parts) IS NOT TRUE",
    "case": "SELECT kind, sum(CASE WHEN EXISTS (SELECT FROM devices d WHERE d.parent = p.pid) THEN 1 ELSE 0 END) AS n"
    " FROM parts p GROUP BY kind",
    "filtered": "SELECT kind, count(*) FILTER (WHERE pid IN (SELECT pid FROM devices_parts WHERE n > 30)) AS n"
    " FROM parts GROUP BY kind",
    "nested_in": "SELECT did FROM devices WHERE did IN (SELECT did FROM devices_parts dp WHERE n >"
    " (SELECT 0.9 * avg(q.n) FROM devices_parts q WHERE q.pid = dp.pid))",
    "doubly": "SELECT p.pid FROM parts p WHERE EXISTS (SELECT FROM devices_parts dp WHERE dp.pid = p.pid AND"
    " NOT EXISTS (SELECT FROM devices d WHERE d.did = dp.did AND d.parent < p.pid)) OR p.price IS NULL",
    "array": "SELECT p.pid, array_to_string(ARRAY(SELECT dp.did FROM devices_parts dp WHERE dp.pid = p.pid ORDER BY 1), ' ')"
    " AS dids FROM parts p",
    "on_subquery": "SELECT p.pid, dp.did FROM parts p LEFT JOIN devices_parts dp ON dp.pid = p.pid"
    " AND dp.n > (SELECT avg(n) FROM devices_parts)",
    "lateral_plain": "SELECT d.did, q.pid, q.cost FROM devices d, LATERAL (SELECT pid, n * d.did AS cost FROM devices_parts dp"
    " WHERE dp.did = d.did AND n > 15) AS q",
    "lateral_sum": "SELECT d.did, q.s, q.n FROM devices d CROSS JOIN LATERAL (SELECT sum(n) AS s, count(n) AS n FROM"
    " devices_parts dp WHERE dp.did = d.did) AS q",
    "lateral_groups": "SELECT d.did, q.* FROM devices d LEFT JOIN LATERAL (SELECT n % 2 AS odd, sum(pid) AS s FROM"
    " devices_parts dp WHERE dp.did = d.did GROUP BY n % 2) AS q ON true",
    "lateral_first": "SELECT p.pid, q.did, q.n FROM parts p LEFT JOIN LATERAL (SELECT did, n FROM devices_parts dp"
    " WHERE dp.pid = p.pid ORDER BY n DESC LIMIT 2) AS q ON q.n > 5",
    "lateral_shown": "SELECT d.did, x.pid, q.* FROM devices d, parts x LEFT JOIN LATERAL (SELECT d.parent AS z FROM"
    " devices_parts) AS q ON q.z = x.pid AND x.price > 20",
    "lateral_shown_of_functions": "SELECT d.did, q.* FROM devices d LEFT JOIN LATERAL (SELECT d.category AS c FROM"
    " generate_series(1, d.parent)) AS q ON true",
    "lateral_counted": "SELECT d.did, q.*, (SELECT max(z) FROM (SELECT d.parent AS z FROM parts WHERE pid < d.did) AS r) AS m"
    " FROM devices d, LATERAL (SELECT c, count(c) AS n FROM (SELECT d.category AS c FROM parts) AS r GROUP BY ROLLUP (c)) AS q",
    "lateral_any": "SELECT d.did, (SELECT p.kind FROM parts p WHERE p.price > d.parent LIMIT 1) AS kind,"
    " (SELECT 1 FROM visits v WHERE v.did = d.did LIMIT 1) AS visited, EXISTS (SELECT * FROM visits v WHERE v.did < d.parent"
    " LIMIT 1) AS earlier FROM devices d WHERE EXISTS (SELECT * FROM devices_parts dp WHERE dp.did = d.did LIMIT 3)",
    "series": "SELECT d.did, i FROM devices d, generate_series(d.parent, d.did) AS i",
    "series_sum": "SELECT d.category, sum(i) AS s FROM devices d, generate_series(d.parent, d.did) AS i GROUP BY d.category",
    "unnested": "SELECT p.pid, letter, nth FROM parts p LEFT JOIN unnest(string_to_array(p.kind, NULL)) WITH ORDINALITY"
    " AS u (letter, nth) ON true",
    "set_in_select": "SELECT p.pid, unnest(ARRAY[p.kind, p.price::text]) AS value FROM parts p",
    "set_in_groups": "SELECT upper(unnest(ARRAY[kind, category])) AS word, generate_series(1, pid % 3) AS i, count(*) AS n,"
    " max(price) AS m FROM parts JOIN devices ON did = pid GROUP BY 1, 2",
    "set_in_rollup": "SELECT unnest(ARRAY[kind, 'all']) AS k, pid % 2 AS odd, sum(price) AS s FROM parts GROUP BY ROLLUP (1, 2)"
    " HAVING count(*) > 1",
    "fields_of_sets": "SELECT p.pid, (jsonb_each(to_jsonb(p) - 'pid')).*, generate_series(1, p.pid % 4) AS i FROM parts p",
    "fields_in_groups": "SELECT (jsonb_each_text(to_jsonb(d))).key, count((d.parent)) AS n FROM devices d GROUP BY 1",
    "recordset": "SELECT p.pid, r.n, r.kind FROM parts p LEFT JOIN jsonb_to_recordset(jsonb_build_array(to_jsonb(p),"
    " jsonb_build_object('n', p.price))) AS r (n numeric, kind text) ON true",
    "recordset_sums": "SELECT p.pid, (SELECT sum(r.pid) FROM ROWS FROM (jsonb_to_recordset(jsonb_build_array(to_jsonb(p)))"
    " AS (pid int, kind text), generate_series(1, p.pid)) WITH ORDINALITY AS r (pid, kind, n, nth) WHERE nth < 3) AS s"
    " FROM parts p",
    "json_objects": "SELECT p.pid, JSON_OBJECT('kind': kind, 'n': (SELECT count(*) FROM devices_parts dp WHERE dp.pid = p.pid)"
    " ABSENT ON NULL RETURNING jsonb) AS o, JSON_ARRAY(price, kind NULL ON NULL RETURNING jsonb) AS a FROM parts p",
    "json_groups": "SELECT kind, JSON_ARRAYAGG(price ORDER BY pid NULL ON NULL RETURNING jsonb) AS a,"
    " JSON_OBJECTAGG(pid: price ABSENT ON NULL RETURNING jsonb) FILTER (WHERE pid > 3) AS o FROM parts GROUP BY kind",
    "json_values": "SELECT JSON_VALUE(to_jsonb(d), '$.parent' RETURNING int DEFAULT -1 ON EMPTY) AS p, count(*) AS n,"
    " JSON_ARRAYAGG(JSON_QUERY(to_jsonb(d), '$.*' WITH WRAPPER) ORDER BY did RETURNING jsonb) AS a FROM devices d"
    " WHERE NOT JSON_EXISTS(to_jsonb(d), '$ ? (@.did == $x)' PASSING parent AS x) GROUP BY 1",
    "cte": "WITH c AS (SELECT pid, price FROM parts WHERE price > 6) SELECT a.pid, b.pid AS other FROM c a JOIN c b"
    " ON a.price < b.price",
    "cte_groups": "WITH c AS (SELECT did, sum(price) AS s FROM parts JOIN devices_parts USING (pid) GROUP BY did)"
    " SELECT d.did, d.category, c.s FROM devices d JOIN c USING (did) WHERE c.s = (SELECT max(s) FROM c)",
    "cte_twice_shown": "WITH c AS (SELECT kind, max(price) AS a, max(price) AS b, kind AS other FROM parts GROUP BY kind)"
    " SELECT x.kind, x.a, x.b, y.other, y.b AS c FROM c x JOIN c y ON x.other = y.kind OR x.b < y.a",
    "cte_once": "WITH c AS (SELECT kind, count(*) AS n FROM parts GROUP BY kind) SELECT n, count(*) AS kinds FROM c GROUP BY n",
}

SINCE = {"json_objects": 16, "json_groups": 16, "json_values": 17}
"""The versions of PostgreSQL that have what some views need."""

CHANGES = (
    "UPDATE parts SET price = price + 0.25 WHERE pid < 5",
    "UPDATE parts SET price = price + 0.125, kind = 'k1' WHERE pid IN (3, 8)",
    "UPDATE parts SET price = 'NaN' WHERE pid = 6",
    "UPDATE parts SET price = NULL WHERE kind = 'k2'",
    "UPDATE parts SET price = 7 WHERE price = 'NaN' OR pid = 12",
    "UPDATE devices SET category = 'phone' WHERE did IN (1, 2)",
    "UPDATE devices SET category = NULL, parent = 3 WHERE did IN (3, 6)",
    "UPDATE devices_parts SET n = 61 - n",
    "DELETE FROM devices_parts WHERE pid IN (2, 9)",
    "INSERT INTO parts VALUES (30, 5, 'k9'), (31, NULL, NULL); INSERT INTO devices_parts VALUES (1, 30, 99), (40, 31, 1)",
    "INSERT INTO devices VALUES (40, 'phone', 1); UPDATE parts SET price = 100.001 WHERE pid = 31",
    "UPDATE devices SET did = did + 100 WHERE did = 4; UPDATE devices_parts SET did = 104 WHERE did = 4;"
    "UPDATE parts SET price = price * 2; DELETE FROM devices WHERE did = 5",
    "UPDATE parts SET pid = 40 - pid WHERE pid IN (19, 20); UPDATE devices_parts SET pid = 40 - pid WHERE pid >= 19",
    "DELETE FROM parts WHERE pid % 2 = 0; DELETE FROM devices WHERE category = 'phone'",
    "DELETE FROM devices_parts",
    "INSERT INTO devices_parts SELECT did, pid, did + pid FROM devices, parts",
    "TRUNCATE devices_parts",
    "DELETE FROM parts; DELETE FROM devices",
    "INSERT INTO parts VALUES (1, 1.0, 'k1'); INSERT INTO devices VALUES (1, 'phone', 1);"
    "INSERT INTO devices_parts VALUES (1, 1, 50)",
    "UPDATE parts SET price = 1.00",
    "INSERT INTO devices VALUES (30, NULL, 1), (31, 'x', 30); INSERT INTO devices VALUES (32, 'x', 31), (33, NULL, 34)",
    "INSERT INTO devices VALUES (34, 'y', 33)",
    "UPDATE visits SET n = n + 1 WHERE n < 2",
    "DELETE FROM visits WHERE did = 2; INSERT INTO visits VALUES (1, NULL, NULL), (1, NULL, NULL), (NULL, NULL, NULL)",
    "INSERT INTO devices SELECT g, 'phone', NULL FROM generate_series(2, 4) AS g; INSERT INTO visits TABLE visits",
    "DELETE FROM visits WHERE ctid IN (SELECT min(ctid) FROM visits GROUP BY visits)",
    "UPDATE visits SET what = 'w1', did = 1; UPDATE devices SET did = did + 1 WHERE did = 4",
    "TRUNCATE visits; INSERT INTO visits VALUES (2, 'w0', 1.0), (2, 'w0', 1.00)",
)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(
    ("strategy", "cache"), [("id", "on"), ("id", "off"), ("tuple", "off"), ("recursive", "off")]
)
@pytest.mark.sampled(3)
def test_every_view_follows_every_change(
    orc, strategy, cache, older, pg_version, part, whole, monkeypatch
):
    if cache == "off" and older:
        pytest.skip("older versions run one strategy, unless they are asked for")
    if cache == "off" or older:
        # What smaller diffs meet is gathered too.
        monkeypatch.setattr(sizes, "FEW", 0)
    orc.execute(TABLES)
    # Each runs a part of the views, another one each day.
    sixths = {"id": 0, "tuple": 2, "recursive": 4}
    share, at = (
        (6, pg_version if older else sixths[strategy]) if cache == "off" or older else (2, 0)
    )
    views = [(n, query) for n, query in VIEWS.items() if SINCE.get(n, 0) <= pg_version]
    views = views if whole else views[(at + part) % share :: share]
    for name, query in views:
        orc.create_view(name, query, strategy=strategy, cache=cache)
    for change in CHANGES:
        orc.execute(change)
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, change


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(("strategy", "cache"), [("id", "on"), ("tuple", "off")])
@pytest.mark.sampled(3)
def test_long_joins_follow_every_change_in_steps(orc, strategy, cache, older, monkeypatch):
    """As where each lookup finds many rows, so that every long join is cut."""
    if older:
        pytest.skip("the statements of a cut join are those of others")
    monkeypatch.setattr(split_joins, "MANY", 0.0)
    orc.execute(TABLES)
    names = ("spj", "computed", "round", "cycle", "cube", "distinct", "one_hidden", "none_joined")
    for name in (*names, "least", "less_than_average", "above_average", "having_total"):
        orc.create_view(f'"{name}"', VIEWS[name], strategy=strategy, cache=cache)
    assert "reached" in orc.explain("round").script
    for change in CHANGES:
        orc.execute(change)
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, change


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "cache"), [("id", "on"), ("tuple", "off")])
@pytest.mark.sampled(3)
def test_a_diff_too_large_to_hold_has_the_rest_computed_anew(orc, strategy, cache, monkeypatch):
    monkeypatch.setattr(sizes, "SMALL", 1)
    monkeypatch.setattr(sizes, "LARGE", 2)
    orc.execute(TABLES)
    names = ("spj", "sums", "cycle", "cube", "distinct", "joined_groups", "above_average")
    for name in names:
        orc.create_view(f'"{name}"', VIEWS[name], strategy=strategy, cache=cache)
    with orc.connection.transaction(force_rollback=True):
        orc.connection.execute("UPDATE parts SET price = price + 1")
        done = orc.connection.execute(
            "SELECT p.kind FROM idivm.watermarks AS w, idivm.run_program(w.view, w.mark, false, false) AS p"
            " JOIN idivm.views AS v ON v.relation = 'sums'::regclass WHERE w.view = v.id"
        ).fetchall()
    # All states, or on a slow machine the content alone.
    assert done in ([("R",)], [("O",)])
    for change in CHANGES:
        orc.execute(change)
        orc.refresh()
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, change


def test_what_was_said_not_to_change_may_change(orc):
    orc.execute(TABLES)
    for name in ("spj", "sums", "joined_groups"):
        orc.create_view(name, VIEWS[name], strategy="recursive", updatable="parts")
    stored = orc.view("spj").plan.program.states
    assert [s.role for s in stored if isinstance(s, StateTable)] == ["join", "content"]
    for change in CHANGES:
        orc.execute(change)
        assert all(report.equal for report in orc.check()), change


@pytest.mark.parametrize("strategy", ["id", "tuple", "recursive"])
def test_what_went_is_not_carried_round_in_a_circle_for_ever(orc, strategy, monkeypatch):
    monkeypatch.setattr(recursion, "MOST", 1000)
    orc.execute(
        "CREATE TABLE e (id int PRIMARY KEY, a text, b text); INSERT INTO e VALUES"
        " (1, 'root', 'a'), (2, 'a', 'b'), (3, 'x', 'y'), (4, 'y', 'x'), (5, 'y', 'z')"
    )
    query = (
        "WITH RECURSIVE r (n, far) AS (SELECT 'root', 0 UNION ALL"
        " SELECT e.b, r.far + 1 FROM e JOIN r ON e.a = r.n) SELECT n, far FROM r"
    )
    orc.create_view("r", query, strategy=strategy)
    with orc.connection.transaction():
        orc.execute("DELETE FROM e WHERE id = 2; INSERT INTO e VALUES (6, 'b', 'x')")
    assert all(report.equal for report in orc.check())
    orc.execute("INSERT INTO e VALUES (7, 'a', 'c'), (8, 'c', 'd'); DELETE FROM e WHERE id = 6")
    assert all(report.equal for report in orc.check())
    assert orc.execute("SELECT count(*) FROM r")[0].rows == [(4,)]


def test_tables_that_change_are_those_of_the_query(orc):
    orc.execute(TABLES)
    with pytest.raises(
        UsageError, match="'device', which is no table of the query; it reads public"
    ):
        orc.create_view("v", VIEWS["spj"], strategy="recursive", updatable="parts, device")


ABOVE = {
    "above_sums": "SELECT n, count(*) AS c, max(cost) AS m FROM sums GROUP BY n",
    "beside_sums": "SELECT d.did, s.cost, d.category FROM devices d LEFT JOIN sums s USING (did)",
    "above_hidden": "SELECT price > 5 AS dear, count(*) AS n FROM bag GROUP BY price > 5",
    "through_hidden": "SELECT b.price, p.pid FROM bag b JOIN parts p ON p.price = b.price",
    "above_null_keys": "SELECT category, kind FROM \"distinct\" WHERE kind > 'k0'",
    "above_whole": "SELECT n + 1 AS more FROM whole",
    "above_windows": "SELECT place, count(*) AS n FROM ranked GROUP BY place",
    "diamond": "SELECT a.n, a.c, s.did FROM above_sums a JOIN sums s ON s.n = a.n",
    "top_of_sums": "SELECT did, cost FROM sums ORDER BY cost DESC NULLS LAST, did LIMIT 3",
}


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("strategy", ["id", "tuple"])
def test_views_above_maintained_views_follow_net_changes(orc, strategy):
    orc.execute(TABLES)
    for name in ("sums", "bag", "distinct", "whole", "ranked"):
        orc.create_view(f'"{name}"', VIEWS[name], strategy=strategy)
    for name, query in ABOVE.items():
        orc.create_view(name, query, strategy=strategy)
    for change in CHANGES:
        orc.execute(change)
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, change


@pytest.mark.parametrize("strategy", ["id", "tuple"])
def test_keys_of_maintained_views_below_do_not_make_rows_distinct(orc, strategy):
    """The keys are no columns of the query, though its plan reads them."""
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b int); INSERT INTO t VALUES (1, 1, 2), (2, 1, 8)"
    )
    orc.create_view("pairs", "SELECT l.a, r.b FROM t l CROSS JOIN t r", strategy=strategy)
    orc.create_view("sums", "SELECT count(*) AS n FROM pairs GROUP BY b", strategy=strategy)
    orc.create_view(
        "v", "SELECT DISTINCT b, n FROM sums LEFT JOIN pairs ON n = b", strategy=strategy
    )
    orc.create_view("w", "SELECT DISTINCT n FROM sums", strategy=strategy)
    orc.create_view("x", "SELECT n FROM sums UNION SELECT b FROM pairs", strategy=strategy)
    for change in ("UPDATE t SET a = 2 WHERE id = 1", "INSERT INTO t VALUES (3, 1, 9), (4, 2, 3)"):
        orc.execute(change)
        assert all(report.equal for report in orc.check()), change


def test_a_strategy_that_cannot_says_why(orc):
    orc.execute("CREATE TABLE bare (a int, b int)")
    last = "SELECT last_value(b) OVER (ORDER BY a) AS l FROM bare"
    with pytest.raises(UnsupportedError, match="the order leaves open what the result is"):
        orc.create_view("v", last, strategy="id")
    assert orc.create_view("v", last).strategy == "recompute"
    each = "SELECT q.a FROM bare, LATERAL (SELECT {} FROM bare b WHERE b.a > bare.a LIMIT 1) AS q"
    with pytest.raises(UnsupportedError, match="the order leaves open what the result is: λ 1"):
        orc.create_view("w", each.format("last_value(b.b) OVER (ORDER BY b.a) AS a"), strategy="id")
    assert orc.create_view("w", each.format("b.a")).strategy == "id"
    assert orc.create_view("x", each.format("bare.a + 1 AS a")).strategy == "id"


def test_an_update_of_a_plain_attribute_touches_one_row_version_each(orc):
    orc.execute(TABLES)
    orc.create_view("v", VIEWS["spj"], strategy="id")
    orc.execute("UPDATE parts SET price = price + 1 WHERE pid = 3")
    (report,) = orc.refresh("v")
    (rows,) = orc.execute("SELECT count(*) FROM v WHERE pid = 3")[0].rows
    assert report.changed == rows[0] > 0
    assert orc.refresh("v")[0].changed == 0


def test_a_cache_that_saves_nothing_is_not_taken(orc):
    orc.execute(
        "CREATE TABLE a (id int PRIMARY KEY, k int, n int); CREATE TABLE t (id int PRIMARY KEY, k int);"
        "INSERT INTO a SELECT g, g % 10, g FROM generate_series(1, 2000) AS g;"
        "INSERT INTO t SELECT g, g % 10 FROM generate_series(1, 100) AS g;"
        "CREATE INDEX ON a (k); CREATE INDEX ON t (k)"
    )
    for _ in range(100):
        orc.execute("UPDATE a SET n = n + 1")
    orc.execute("ANALYZE a, t; SELECT pg_stat_force_next_flush(); SELECT 1")
    # An update of n changes ten rows of the cache, or twice as many looked up without one. No view tree has the
    # second condition.
    orc.create_view(
        "v",
        "SELECT t.id, sum(a.n) AS n FROM a JOIN t ON a.k = t.k AND a.id > t.id - 1000 GROUP BY t.id",
    )
    stored = orc.view("v").plan.program.states
    assert [s.role for s in stored if isinstance(s, StateTable)] == ["content"]
    assert "\n+ id without a cache: " in orc.explain("v").why


def test_a_cache_that_saves_little_is_not_taken(orc):
    orc.execute(
        "CREATE TABLE c (id int PRIMARY KEY, region int NOT NULL);"
        "CREATE TABLE o (id int PRIMARY KEY, c int NOT NULL REFERENCES c, day int NOT NULL, n int NOT NULL);"
        "INSERT INTO c SELECT g, g % 5 FROM generate_series(1, 100) AS g;"
        "INSERT INTO o SELECT g, 1 + g % 100, g % 30, g FROM generate_series(1, 5000) AS g;"
        "CREATE INDEX ON o (c); ANALYZE c, o"
    )
    # The cache would have the rows of o with region. A change saves the lookup of the region alone.
    orc.create_view(
        "v", "SELECT region, day, sum(n) AS n FROM o JOIN c ON c.id = o.c GROUP BY region, day"
    )
    [content] = [s for s in orc.view("v").plan.program.states if isinstance(s, StateTable)]
    assert content.role == "content"
    taken, *others = orc.view("v").plan.evidence.reasons
    cached = next(reason for reason in others if reason.strategy == "id")
    assert taken.estimate.accesses > cached.estimate.accesses


def test_distinct_values_are_found_once(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, g int, h text NOT NULL, x int, y numeric(8, 2), s text);"
        "INSERT INTO t SELECT i, nullif(i % 7, 0), 'h' || i % 3, nullif(i % 11, 3), i % 13 / 3.0, 's' || i % 5"
        " FROM generate_series(1, 300) AS i; INSERT INTO t VALUES (999, NULL, 'no value')"
    )
    orc.create_view(
        "v",
        "SELECT g, h, count(DISTINCT x) AS nx, sum(DISTINCT x) AS sx, avg(DISTINCT y) AS ay, sum(y) AS sy,"
        " count(DISTINCT s) FILTER (WHERE id > 50) AS ns, count(*) AS n, min(id) AS id FROM t GROUP BY g, h",
    )
    orc.create_view(
        "w", "SELECT count(DISTINCT x) AS nx, sum(DISTINCT y) AS sy, sum(id) AS s FROM t"
    )
    for name, values in (("v", 3), ("w", 2)):
        content = orc.view(name).plan.program.state("content")
        assert len(content.query.states) == values
    for change in (
        "SELECT 1",
        "UPDATE t SET x = x + 1 WHERE id % 5 = 0",
        "UPDATE t SET x = NULL WHERE h = 'h1'; DELETE FROM t WHERE g = 3",
        "TRUNCATE t",
        "INSERT INTO t VALUES (1, NULL, 'h', NULL, 'NaN', NULL), (2, NULL, 'h', 5, 'NaN', 's')",
    ):
        orc.execute(change)
        orc.refresh()
        assert all(report.equal for report in orc.check()), change
        orc.connection.execute("UPDATE idivm.views SET status = 'invalid'")
        orc.refresh()
        assert all(report.equal for report in orc.check()), change


def test_auto_goes_by_what_a_change_costs(orc):
    orc.execute(TABLES)
    orc.execute(
        "CREATE TABLE a (id int PRIMARY KEY, k int NOT NULL, n int);"
        "CREATE TABLE b (id int PRIMARY KEY, k int NOT NULL);"
        "INSERT INTO a SELECT g, g % 2, g FROM generate_series(1, 400) AS g;"
        "INSERT INTO b SELECT g, g % 2 FROM generate_series(1, 400) AS g;"
        "ANALYZE a, b, parts, devices, devices_parts"
    )
    # Each row of one meets half of the other: a view tree reads one count of each instead.
    query = "SELECT k, count(*) AS c FROM a JOIN b USING (k) GROUP BY k"
    orc.create_view("many", query)
    orc.create_view("by_id", query, strategy="id")
    orc.create_view("few", VIEWS["spj"])
    assert (orc.view("few").strategy, orc.view("many").strategy) == ("id", "viewtree")
    why = orc.explain("many").why.splitlines()[1:]
    assert why[0].startswith("+ viewtree: a change costs ")
    assert any(line.startswith("- id: a change costs ") for line in why)
    costs = {(c.source, c.kind.value): c for c in orc.view("by_id").plan.program.costs}
    assert 100 < costs["public.a", "insert"].a < 400
    for change in CHANGES[:8]:
        orc.execute(change)
    assert all(report.equal for report in orc.check())


def test_orders_over_a_view_are_completed_by_the_key_that_it_shows(orc):
    orc.execute(TABLES)
    orc.create_view("costs", "SELECT did, sum(n) AS n FROM devices_parts GROUP BY did")
    orc.create_view("most", "SELECT n FROM costs ORDER BY n DESC LIMIT 3", strategy="id")
    ranked = orc.create_view(
        "ranked", "SELECT did, row_number() OVER (ORDER BY n) AS nth FROM costs"
    )
    assert ranked.strategy == "id"
    for change in (
        "UPDATE devices_parts SET n = 10",
        "DELETE FROM devices_parts WHERE did > 9",
        "INSERT INTO devices_parts SELECT 10, g, 10 FROM generate_series(1, 15) AS g",
    ):
        orc.execute(change)
        assert all(report.equal for report in orc.check())
