"""Changes have base types in place of domains: no program may take another overload for that reason."""

SETUP = """
    CREATE DOMAIN posi AS int CHECK (VALUE > 0);
    CREATE DOMAIN word AS text;
    CREATE TYPE pair AS (p posi, n int);
    CREATE FUNCTION fo(posi) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT 'domain'$$;
    CREATE FUNCTION fo(int) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT 'int'$$;
    CREATE FUNCTION same(posi[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT 'domains'$$;
    CREATE FUNCTION same(int[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT 'ints'$$;
    CREATE FUNCTION wide(numeric, numeric) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT 'numerics'$$;
    CREATE FUNCTION wide(anyelement, anyelement) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT 'alike'$$;
    CREATE FUNCTION kind(anyelement) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
        $$BEGIN RETURN pg_typeof($1)::oid = 'public.posi'::regtype; END$$;
    CREATE FUNCTION sole(int) RETURNS int LANGUAGE sql IMMUTABLE AS $$SELECT $1 + 1$$;
    CREATE FUNCTION made(int) RETURNS posi LANGUAGE sql IMMUTABLE AS $$SELECT ($1 + 1)::public.posi$$;
    CREATE FUNCTION plus(int, posi) RETURNS int LANGUAGE sql IMMUTABLE AS $$SELECT $1 + 100$$;
    CREATE FUNCTION shown(pair) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
        $$BEGIN RETURN pg_typeof($1.p)::oid = 'public.posi'::regtype; END$$;
    CREATE AGGREGATE total(posi) (SFUNC = plus, STYPE = int, INITCOND = '0');
    CREATE AGGREGATE total(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0');
    CREATE OPERATOR <+> (FUNCTION = int4pl, LEFTARG = int, RIGHTARG = int);
    CREATE OPERATOR <+> (FUNCTION = plus, LEFTARG = int, RIGHTARG = posi);
    CREATE TABLE dt (id int PRIMARY KEY, p posi, q word, a posi[], n int);
    INSERT INTO dt VALUES (1, 1, 'a', '{1,2}', 1), (2, 1, 'b', '{3}', 2);
    CREATE VIEW below AS SELECT id, p AS x FROM dt;
"""

BY_DOMAIN = (
    "SELECT fo(p) AS f, count(*) AS n FROM dt GROUP BY 1",
    "SELECT id, fo(x) AS f FROM below",
    "SELECT id, fo((SELECT max(e.id)::posi FROM dt e WHERE e.id <= dt.id)) AS f FROM dt",
    "SELECT id, fo(coalesce(p, p)) AS f FROM dt",
    "SELECT id, fo(CASE WHEN n > 1 THEN p ELSE p END) AS f FROM dt",
    "SELECT id, fo(lag(p) OVER (ORDER BY id)) AS f FROM dt",
    "SELECT fo(g) AS f, count(*) AS n FROM (SELECT made(id) AS g, id FROM dt) AS s GROUP BY 1",
    "SELECT id, fo(m) AS f FROM dt, made(id) AS m",
    "SELECT id, same(ARRAY[p]) AS f FROM dt",
    "SELECT n, same(array_agg(p)) AS f FROM dt GROUP BY n",
    "SELECT id, kind(p) AS f FROM dt",
    "SELECT id, kind(ARRAY(SELECT e.p FROM dt e WHERE e.id = dt.id)) AS f FROM dt",
    "SELECT id, shown(ROW(p, n)::pair) AS f FROM dt",
    "SELECT n % 2 AS k, total(p) AS f FROM dt GROUP BY 1",
    "SELECT id, n <+> p AS f FROM dt",
    "SELECT id FROM dt WHERE n <+> p > 50",
    "SELECT n, array_agg(p) = ARRAY[1]::posi[] AS f FROM dt GROUP BY n",
)
"""Queries that only PostgreSQL's own resolution answers."""

INDIFFERENT = (
    "SELECT p AS k, count(p) AS n, sum(p) AS s, max(q) AS m FROM dt GROUP BY p",
    "SELECT id, wide(p, n) AS f, fo(CASE WHEN n > 1 THEN p END) AS c FROM dt",
    "SELECT id, fo(n) AS f, sole(p) AS o, fo(p::int) AS i FROM dt",
    "SELECT id, to_jsonb(p) AS j, upper(q) AS u, p + n AS s, q || p AS t FROM dt",
    "SELECT n, array_agg(p ORDER BY id) AS a, jsonb_agg(q ORDER BY id) AS j FROM dt GROUP BY n",
    "SELECT id, jsonb_build_object(q, p) AS j, a[1] AS f, p = ANY (a) AS i FROM dt",
)
"""Queries that mean the same without domains, and stay incremental."""


def test_what_was_resolved_by_a_domain_is_recomputed(orc):
    sql = orc.connection.execute
    sql(SETUP)
    views = {f"v{n}": query for n, query in enumerate(BY_DOMAIN + INDIFFERENT)}
    for name, query in views.items():
        orc.create_view(name, query)
    for change in (
        "INSERT INTO dt VALUES (3, 2, 'c', '{4,5}', 3), (4, NULL, 'd', NULL, 3), (5, 1, 'a', '{1}', 1)",
        "UPDATE dt SET p = 7, a = '{8}' WHERE id IN (1, 3)",
        "DELETE FROM dt WHERE id = 2",
    ):
        sql(change)
        orc.refresh()
        for name, query in views.items():
            expected = sorted(map(str, sql(query).fetchall()))
            assert sorted(map(str, sql(f"TABLE {name}").fetchall())) == expected, query
    taken = {query: orc.view(name).strategy for name, query in views.items()}
    assert {taken[query] for query in BY_DOMAIN} == {"recompute"}
    assert [query for query in INDIFFERENT if taken[query] == "recompute"] == []
    assert (
        "a call with an argument of a domain type, for which a program could call another overload: public.fo()"
        in orc.explain("v0").why
    )
