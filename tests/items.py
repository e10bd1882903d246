"""Two tables, views of each kind over them, and changes that reach all of them."""

TABLES = """
CREATE TABLE grp (g text PRIMARY KEY, factor numeric NOT NULL);
CREATE TABLE item (id int PRIMARY KEY, g text, n int);
INSERT INTO grp VALUES ('a', 1.0), ('b', 2), ('c', 3);
INSERT INTO item SELECT i, chr(97 + i % 3), i FROM generate_series(1, 12) AS i;
"""

QUERIES = {
    "plain": "SELECT id, g, n FROM item WHERE n > 2",
    "joined": "SELECT i.id, i.n, p.factor FROM item i JOIN grp p USING (g)",
    "per_group": "SELECT g, sum(n) AS total, avg(n) AS mean, max(n) AS most FROM item GROUP BY g",
    "total": "SELECT count(*) AS c, sum(n) AS s FROM item",
    "bag": "SELECT g, n % 2 AS odd FROM item",
    "padded": "SELECT p.g, i.id, i.n FROM grp p LEFT JOIN item i USING (g)",
    "top": "SELECT id, n FROM item ORDER BY n DESC, id LIMIT 3",
}

CHANGES = (
    "UPDATE item SET n = n + 1 WHERE id < 4",
    "INSERT INTO item VALUES (20, 'a', 7), (21, NULL, NULL), (22, 'z', 3)",
    "DELETE FROM item WHERE g = 'b'; UPDATE grp SET factor = 1.00 WHERE g = 'a'",
    "UPDATE item SET id = id + 100, g = 'c' WHERE id > 10",
    "DELETE FROM item WHERE id = 1; INSERT INTO item VALUES (1, 'a', 1)",
    "TRUNCATE item; INSERT INTO item VALUES (1, 'a', 5), (2, 'a', 6), (3, 'b', 6)",
)
