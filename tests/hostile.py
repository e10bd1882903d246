"""What a role can own below a view of another role: kinds of objects, for the adversary's matrix.

Each entry has the statements that the attacker runs, and a query of the view's owner.
"""

from __future__ import annotations


def spy(name: str, arguments: str, returns: str, result: str) -> str:
    """Return the statement that creates a function which tells who runs it."""
    return (
        f"CREATE FUNCTION mallory.{name}({arguments}) RETURNS {returns} IMMUTABLE LANGUAGE plpgsql AS"
        f" $$BEGIN PERFORM mallory.trap(); RETURN {result}; END$$;"
    )


ENUM = (
    "CREATE TYPE mallory.e AS ENUM ('a', 'b');"
    "CREATE TABLE mallory.x (id int PRIMARY KEY, e mallory.e, n int);"
)

TO_JSON = (
    spy("to_j", "e mallory.e", "json", "'1'")
    + "CREATE CAST (mallory.e AS json) WITH FUNCTION mallory.to_j(mallory.e)"
)
TO_TEXT = (
    spy("to_t", "e mallory.e", "text", "'q'")
    + "CREATE CAST (mallory.e AS text) WITH FUNCTION mallory.to_t(mallory.e)"
)

NEAR = spy("near", "a int, b int", "boolean", "true")

HOSTILE = {
    "function": ("", "SELECT id, mallory.f(n) AS n FROM t"),
    "function of a constant": ("", "SELECT id, mallory.f(1) AS n FROM t"),
    "condition": ("", "SELECT id FROM t WHERE mallory.ok(n)"),
    "aggregate": (
        "CREATE FUNCTION mallory.step(a int, b int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM mallory.trap(); RETURN a; END$$;"
        "CREATE AGGREGATE mallory.agg(int) (SFUNC = mallory.step, STYPE = int, INITCOND = '0')",
        "SELECT k, mallory.agg(n) AS n FROM t GROUP BY k",
    ),
    "operator": (
        "CREATE FUNCTION mallory.near(a int, b int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM mallory.trap(); RETURN true; END$$;"
        "CREATE OPERATOR mallory.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = mallory.near)",
        "SELECT id FROM t WHERE n OPERATOR(mallory.===) id",
    ),
    "cast": (
        "CREATE TYPE mallory.e AS ENUM ('1');"
        "CREATE FUNCTION mallory.to_e(n int) RETURNS mallory.e IMMUTABLE LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM mallory.trap(); RETURN '1'; END$$;"
        "CREATE CAST (int AS mallory.e) WITH FUNCTION mallory.to_e(int)",
        "SELECT id, n::mallory.e AS e FROM t",
    ),
    "domain": (
        "CREATE DOMAIN mallory.d AS int CHECK (mallory.ok(VALUE))",
        "SELECT id, n::mallory.d AS n FROM t",
    ),
    "domain of a column": (
        "CREATE DOMAIN mallory.d AS int CHECK (mallory.ok(VALUE));"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n mallory.d)",
        "SELECT id, n FROM mallory.x",
    ),
    "domain of a key": (
        "CREATE DOMAIN mallory.d AS int CHECK (mallory.ok(VALUE));"
        "CREATE TABLE mallory.x (id mallory.d PRIMARY KEY, n int)",
        "SELECT n FROM mallory.x",
    ),
    "domain without a constraint yet": (
        "CREATE DOMAIN mallory.d AS int; CREATE TABLE mallory.x (id int PRIMARY KEY, n mallory.d)",
        "SELECT id, n FROM mallory.x",
    ),
    "domain in a row": (
        "CREATE DOMAIN mallory.d AS int CHECK (mallory.ok(VALUE)); CREATE TYPE mallory.c AS (a mallory.d);"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, c mallory.c[])",
        "SELECT id, c FROM mallory.x",
    ),
    "domain in a whole row": (
        "CREATE DOMAIN mallory.d AS int CHECK (mallory.ok(VALUE));"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n mallory.d)",
        "SELECT id, to_jsonb(x) AS j FROM mallory.x",
    ),
    "range": (
        "CREATE FUNCTION mallory.gap(a int, b int) RETURNS float8 IMMUTABLE LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM mallory.trap(); RETURN a - b; END$$;"
        "CREATE TYPE mallory.r AS RANGE (SUBTYPE = int, SUBTYPE_DIFF = mallory.gap);"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, r mallory.r)",
        "SELECT id, r FROM mallory.x",
    ),
    "plain view": (
        "CREATE VIEW mallory.v AS SELECT id, mallory.f(n) AS n FROM t",
        "SELECT id, n FROM mallory.v",
    ),
    "plain views": (
        "CREATE VIEW mallory.w AS SELECT id, n FROM t WHERE mallory.ok(n);"
        "CREATE VIEW mallory.v WITH (security_invoker) AS SELECT id, n FROM mallory.w",
        "SELECT id, n FROM mallory.v",
    ),
    "barrier view": (
        "CREATE VIEW mallory.v WITH (security_barrier) AS SELECT id, n FROM t WHERE mallory.ok(n)",
        "SELECT id, n FROM mallory.v",
    ),
    "function with a query": (
        "CREATE VIEW mallory.v AS SELECT mallory.f(n) AS n FROM t;"
        "CREATE FUNCTION mallory.many() RETURNS bigint STABLE LANGUAGE sql"
        " BEGIN ATOMIC SELECT sum(n) FROM mallory.v; END",
        "SELECT id, mallory.many() AS n FROM t",
    ),
    "window aggregate": (
        spy("step", "a int, b int", "int", "a")
        + "CREATE AGGREGATE mallory.agg(int) (SFUNC = mallory.step, STYPE = int, INITCOND = '0')",
        "SELECT id, mallory.agg(n) OVER (PARTITION BY k ORDER BY id) AS n FROM t",
    ),
    "last function of an aggregate": (
        spy("last", "a int", "int", "a")
        + "CREATE AGGREGATE mallory.agg(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0', FINALFUNC = mallory.last)",
        "SELECT k, mallory.agg(n) AS n FROM t GROUP BY k",
    ),
    "moving function of an aggregate": (
        spy("step", "a int, b int", "int", "a")
        + "CREATE AGGREGATE mallory.agg(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0',"
        " MSFUNC = mallory.step, MINVFUNC = mallory.step, MSTYPE = int, MINITCOND = '0')",
        "SELECT k, mallory.agg(n) AS n FROM t GROUP BY k",
    ),
    "ordered aggregate": (
        spy("step", "a int, b int", "int", "a")
        + "CREATE AGGREGATE mallory.agg(ORDER BY int) (SFUNC = mallory.step, STYPE = int, INITCOND = '0')",
        "SELECT k, mallory.agg() WITHIN GROUP (ORDER BY n) AS n FROM t GROUP BY k",
    ),
    "negator": (
        NEAR + "CREATE OPERATOR mallory.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq,"
        " NEGATOR = OPERATOR(mallory.!==));"
        "CREATE OPERATOR mallory.!== (LEFTARG = int, RIGHTARG = int, FUNCTION = mallory.near)",
        "SELECT id FROM t WHERE NOT (n OPERATOR(mallory.===) id)",
    ),
    "commutator": (
        NEAR + "CREATE OPERATOR mallory.<<< (LEFTARG = int, RIGHTARG = int, FUNCTION = int4lt,"
        " COMMUTATOR = OPERATOR(mallory.>>>));"
        "CREATE OPERATOR mallory.>>> (LEFTARG = int, RIGHTARG = int, FUNCTION = mallory.near)",
        "SELECT id FROM t WHERE 3 OPERATOR(mallory.<<<) n",
    ),
    "operator of an array": (
        NEAR
        + "CREATE OPERATOR mallory.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = mallory.near)",
        "SELECT id FROM t WHERE n OPERATOR(mallory.===) ANY (ARRAY[1, id])",
    ),
    "cast to json": (
        ENUM + TO_JSON,
        "SELECT id, to_jsonb(e) AS j FROM mallory.x",
    ),
    "cast to json in a row": (
        ENUM + TO_JSON,
        "SELECT id, row_to_json(x) AS j FROM mallory.x",
    ),
    "cast to json of a constant": (
        ENUM + TO_JSON,
        "SELECT id, to_jsonb('a'::mallory.e) AS j FROM t",
    ),
    "cast to text in ||": (
        ENUM + TO_TEXT,
        "SELECT id, 'x'::text || e AS w FROM mallory.x",
    ),
    "implicit cast": (
        ENUM
        + spy("to_i", "e mallory.e", "int", "1")
        + "CREATE CAST (mallory.e AS int) WITH FUNCTION mallory.to_i(mallory.e) AS IMPLICIT",
        "SELECT id, e + 1 AS i FROM mallory.x",
    ),
    "domain over an array": (
        "CREATE DOMAIN mallory.d AS int[] CHECK (mallory.ok(VALUE[1]));"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n mallory.d)",
        "SELECT id, n FROM mallory.x",
    ),
    "domain over a domain": (
        "CREATE DOMAIN mallory.d1 AS int CHECK (mallory.ok(VALUE)); CREATE DOMAIN mallory.d AS mallory.d1;"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n mallory.d)",
        "SELECT n, count(*) AS c FROM mallory.x GROUP BY n",
    ),
    "range of a domain": (
        "CREATE DOMAIN mallory.d AS int CHECK (mallory.ok(VALUE)); CREATE TYPE mallory.r AS RANGE (SUBTYPE = mallory.d);"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, r mallory.r)",
        "SELECT id, r FROM mallory.x",
    ),
    "default of an argument": (
        "CREATE FUNCTION mallory.g(n int DEFAULT mallory.f(1)) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT n'",
        "SELECT id, mallory.g() AS n FROM t",
    ),
    "function with rows": (
        "CREATE FUNCTION mallory.many(n int) RETURNS SETOF int IMMUTABLE LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM mallory.trap(); RETURN NEXT n; END$$",
        "SELECT id, m FROM t, mallory.many(n) AS m",
    ),
    "index of a constant": (
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int); CREATE INDEX ON mallory.x ((n + mallory.f(1)))",
        "SELECT id, n FROM mallory.x",
    ),
    "index": (
        # PostgreSQL calls it with rows for the table's owner alone; but nobody sees that no argument is constant.
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int); CREATE INDEX ON mallory.x (mallory.f(n))",
        "SELECT id, n FROM mallory.x",
    ),
    "predicate of an index": (
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int); CREATE INDEX ON mallory.x (n) WHERE mallory.ok(1)",
        "SELECT id FROM mallory.x WHERE n = 3",
    ),
    "index of an operator": (
        NEAR
        + "CREATE OPERATOR mallory.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = mallory.near);"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int); CREATE INDEX ON mallory.x ((1 OPERATOR(mallory.===) 1), n)",
        "SELECT id, n FROM mallory.x",
    ),
    "statistics": (
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int);"
        "CREATE STATISTICS mallory.st ON n, (n + mallory.f(1)) FROM mallory.x",
        "SELECT n, count(*) AS c FROM mallory.x GROUP BY n",
    ),
    "key of partitions": (
        "CREATE TABLE mallory.x (id int, n int) PARTITION BY RANGE ((n + mallory.f(1)));"
        "CREATE TABLE mallory.x1 PARTITION OF mallory.x FOR VALUES FROM (0) TO (10)",
        "SELECT id, n FROM mallory.x",
    ),
    "index of a partition": (
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);"
        "CREATE TABLE mallory.x1 PARTITION OF mallory.x FOR VALUES FROM (0) TO (10);"
        "CREATE INDEX ON mallory.x1 ((n + mallory.f(1)))",
        "SELECT id, n FROM mallory.x",
    ),
    "constraint of a child": (
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int);"
        "CREATE TABLE mallory.x1 (CHECK (n < mallory.f(100))) INHERITS (mallory.x)",
        "SELECT id FROM mallory.x WHERE n > 3",
    ),
    "index of a materialized view": (
        "CREATE MATERIALIZED VIEW mallory.x AS SELECT 1 AS id, 2 AS n; CREATE INDEX ON mallory.x ((n + mallory.f(1)))",
        "SELECT t.id, x.n FROM t JOIN mallory.x AS x ON x.id = t.id",
    ),
    "view over a table with an index": (
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int); CREATE INDEX ON mallory.x ((n + mallory.f(1)));"
        "CREATE VIEW mallory.v AS SELECT id, n FROM mallory.x",
        "SELECT id, n FROM mallory.v",
    ),
}
"""What is refused: code of the attacker would run when the query is planned or executed."""


HARMLESS = {
    "table": (
        # Everything of a table that runs when it is written.
        """
        CREATE SEQUENCE mallory.s;
        CREATE TABLE mallory.x (
            id int PRIMARY KEY, n int DEFAULT mallory.f(1) CHECK (mallory.ok(n)),
            g int GENERATED ALWAYS AS (mallory.f(n)) STORED);
        CREATE FUNCTION mallory.fires() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN PERFORM mallory.trap(); RETURN NEW; END$$;
        CREATE TRIGGER before BEFORE INSERT ON mallory.x FOR EACH ROW EXECUTE FUNCTION mallory.fires();
        CREATE TRIGGER zz AFTER INSERT ON mallory.x FOR EACH STATEMENT EXECUTE FUNCTION mallory.fires();
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON mallory.x DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION mallory.fires();
        CREATE RULE also AS ON INSERT TO mallory.x DO ALSO SELECT mallory.trap();
        """,
        "SELECT n, sum(g) AS g FROM mallory.x GROUP BY n",
    ),
    "partitioned table": (
        """
        CREATE TABLE mallory.x (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
        CREATE TABLE mallory.x1 PARTITION OF mallory.x (n DEFAULT mallory.f(1)) FOR VALUES FROM (0) TO (10);
        """,
        "SELECT id, n FROM mallory.x",
    ),
    "enum, composite and collation": (
        """
        CREATE TYPE mallory.e AS ENUM ('a', 'b');
        CREATE TYPE mallory.c AS (a int, e mallory.e);
        CREATE COLLATION mallory.col FROM "C";
        CREATE TABLE mallory.x (id int PRIMARY KEY, n int, e mallory.e, c mallory.c, w text COLLATE mallory.col);
        """,
        "SELECT id, e, c, w FROM mallory.x",
    ),
    "text search configuration": (
        "CREATE TEXT SEARCH CONFIGURATION mallory.ts (COPY = simple); CREATE TABLE mallory.x (id int PRIMARY KEY, n int)",
        "SELECT id, to_tsvector('mallory.ts', n::text) AS words FROM mallory.x",
    ),
    "plain view": (
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int);"
        "CREATE VIEW mallory.v AS SELECT id, n + 1 AS n FROM mallory.x WHERE n > 0",
        "SELECT id, n FROM mallory.v",
    ),
    "range": (
        "CREATE TYPE mallory.r AS RANGE (SUBTYPE = int);"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int, r mallory.r)",
        "SELECT r, count(*) AS c FROM mallory.x GROUP BY r",
    ),
    "policy": (
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int); ALTER TABLE mallory.x ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY p ON mallory.x USING (mallory.ok(n))",
        "SELECT n, count(*) AS c FROM mallory.x GROUP BY n",
    ),
    "operator of PostgreSQL's function": (
        "CREATE OPERATOR mallory.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int)",
        "SELECT n, count(*) AS c FROM mallory.x WHERE n OPERATOR(mallory.===) n GROUP BY n",
    ),
    "cast without code of the attacker": (
        "CREATE TYPE mallory.e AS ENUM ('1', '2', '3', '4'); CREATE CAST (int AS mallory.e) WITH INOUT;"
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int)",
        "SELECT n::mallory.e AS e, count(*) AS c FROM mallory.x GROUP BY 1",
    ),
    "inheritance": (
        "CREATE TABLE mallory.x (id int PRIMARY KEY, n int);"
        "CREATE TABLE mallory.x1 (n int DEFAULT mallory.f(1), CHECK (n > 0)) INHERITS (mallory.x)",
        "SELECT n, count(*) AS c FROM mallory.x GROUP BY n",
    ),
}
"""What runs in the attacker's own statements alone. Each table mallory.x has the columns id and n."""


LATER = {
    "index of a constant": (ENUM, "n", "CREATE INDEX ON mallory.x ((n + mallory.f(1)))"),
    "predicate of an index": (ENUM, "n", "CREATE INDEX ON mallory.x (n) WHERE mallory.ok(1)"),
    "statistics": (
        ENUM,
        "n",
        "CREATE STATISTICS mallory.st ON n, (n + mallory.f(1)) FROM mallory.x",
    ),
    "constraint of a child": (
        ENUM,
        "n",
        "CREATE TABLE mallory.x1 (CHECK (n < mallory.f(100))) INHERITS (mallory.x)",
    ),
    "cast to json": (
        ENUM,
        "to_jsonb(e)",
        TO_JSON,
    ),
    "cast to text": (
        ENUM,
        "'x'::text || e",
        TO_TEXT,
    ),
    "negator": (
        ENUM + "CREATE OPERATOR mallory.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)",
        "NOT (n OPERATOR(mallory.===) 3)",
        NEAR
        + "CREATE OPERATOR mallory.!== (LEFTARG = int, RIGHTARG = int, FUNCTION = mallory.near,"
        " NEGATOR = OPERATOR(mallory.===))",
    ),
}
"""What comes after the view: statements before it, an expression that the view groups by, statements after it."""
