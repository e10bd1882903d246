-- Recompute a state: evaluate its query and apply the difference.

-- Return whether PostgreSQL would evaluate a query with parallel workers.
CREATE OR REPLACE FUNCTION idivm.runs_in_parallel(query text) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    planned jsonb;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON, COSTS OFF) ' || query INTO planned;
    RETURN jsonb_path_exists(planned, '$.**."Node Type" ? (@ starts with "Gather")');
END
$$;
COMMENT ON FUNCTION idivm.runs_in_parallel(text) IS 'whether PostgreSQL would evaluate a query with parallel workers';

-- Run a statement and return the number of rows that it inserts, or the number in its result. To return a row for
-- each inserted row and to count these rows would take a fifth longer.
CREATE OR REPLACE FUNCTION idivm.run_counted(statement text, inserts boolean) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    changed bigint;
BEGIN
    IF inserts THEN
        EXECUTE statement;
        GET DIAGNOSTICS changed = ROW_COUNT;
    ELSE
        EXECUTE statement INTO changed;
    END IF;
    RETURN changed;
END
$$;
COMMENT ON FUNCTION idivm.run_counted(text, boolean) IS
    'runs a statement, and returns how many rows it inserts, or the number in its result';

-- Run a statement that reads the rows of a query, which stands between `head` and `tail`, and return the number in
-- its result, or the number of rows that it inserts if it returns no rows. If PostgreSQL would use parallel workers
-- for the query, the function first evaluates it into a table of this transaction, because statements that change a
-- table or assign a variable get no parallel workers. The table is not temporary: a transaction with temporary
-- tables cannot be prepared. To ask for the plan takes as long as planning, so it is not asked for a content whose query is
-- known to cost less than starting workers.
CREATE OR REPLACE FUNCTION idivm.run_over(state regclass, query text, head text, tail text) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    staged text := format('idivm_state.%I', state::oid || '_staged');
    inserts boolean := head LIKE 'INSERT %';
    changed bigint;
BEGIN
    IF current_setting('max_parallel_workers_per_gather') <> '0' AND NOT EXISTS (
           SELECT FROM pg_class c
           JOIN idivm.views v ON v.id = substring(c.relname, '_([0-9]+)$')::integer AND v.state = c.oid
           CROSS JOIN LATERAL idivm.known_work(v.id) AS known
           WHERE c.oid = run_over.state
             AND known.query_work * current_setting('cpu_tuple_cost')::float8 < current_setting('parallel_setup_cost')::float8)
       AND idivm.runs_in_parallel(query) THEN
        BEGIN
            EXECUTE format('CREATE UNLOGGED TABLE %s AS %s', staged, query);
            changed := idivm.run_counted(head || 'SELECT * FROM ' || staged || tail, inserts);
            EXECUTE 'DROP TABLE ' || staged;
            RETURN changed;
        EXCEPTION WHEN OTHERS THEN
            -- The owner may have lost the right to create tables here, or an event trigger refuses it. Errors of
            -- the query or of the statement occur again below.
            changed := NULL;
        END;
    END IF;
    RETURN idivm.run_counted(head || query || tail, inserts);
END
$$;
COMMENT ON FUNCTION idivm.run_over(regclass, text, text, text) IS
    'runs a statement that reads the rows of a query, which parallel workers evaluate first if PostgreSQL would use them';

-- Change a state into the rows of its query, and return the number of changed rows. Only the difference is
-- written, so that readers and the views above see no other changes. A full join finds the difference, because
-- PostgreSQL never executes it as a nested loop. Rows are written in the order of the key, which halves the time
-- for the indexes. `together` names the columns that order first rows. With `shown`, the query has these columns alone,
-- and the others keep their values. The function runs with the settings of an ordinary query, not with the settings of
-- the calling program, and with the rights of the caller.
CREATE OR REPLACE FUNCTION idivm.recompute_state(state regclass, key text[], nullable text[], together text[], query text,
                                                 column_names text[] DEFAULT NULL)
    RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET max_parallel_workers_per_gather = 0 SET join_collapse_limit = 8 SET enable_nestloop = on
    SET enable_seqscan = on SET enable_hashjoin = on SET enable_mergejoin = on SET enable_material = on
AS $$
DECLARE
    columns text[] := ARRAY(SELECT quote_ident(a.attname) FROM pg_attribute a
                            WHERE a.attrelid = state AND a.attnum > 0 AND NOT a.attisdropped
                              AND coalesce(a.attname = ANY (column_names), true)
                            ORDER BY coalesce(array_position(column_names, a.attname::text), a.attnum));
    listed text := array_to_string(columns, ', ');
    -- Where a join equates columns of several types, the query may return another type than the view does.
    typed text := (SELECT string_agg(format('f.%s::%s', name, format_type(a.atttypid, -1)), ', ' ORDER BY place)
                   FROM unnest(columns) WITH ORDINALITY AS c (name, place)
                   JOIN pg_attribute a ON a.attrelid = state AND quote_ident(a.attname) = c.name);
    old_row text := 't.' || array_to_string(columns, ', t.');
    new_row text := 'f.' || array_to_string(columns, ', f.');
    sets text := (SELECT string_agg(format('%1$s = f.%1$s', name), ', ') FROM unnest(columns) AS name);
    -- Each combination of NULLs in these columns gets its own join. Further columns are compared as arrays: NULL equals
    -- NULL within an array, and arrays can be joined by hashing or merging.
    split text[] := nullable[:3];
    -- A NULL array within an array is not possible.
    is_joinable boolean := NOT EXISTS (
        SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = state AND a.attname = ANY (nullable[4:]) AND t.typarray = 0);
    -- Names that no column of the state has.
    spare text[] := ARRAY(SELECT 'idivm_' || n FROM generate_series(1, 1700) AS n
                          WHERE 'idivm_' || n <> ALL (columns) ORDER BY n LIMIT 2);
    pairs text;
    is_empty boolean;
    changed bigint;
BEGIN
    SET LOCAL max_parallel_workers_per_gather TO DEFAULT;
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM %s)', state) INTO is_empty;
    IF NOT is_empty AND NOT is_joinable THEN
        EXECUTE format('DELETE FROM %s', state);
        is_empty := true;
    END IF;
    IF is_empty THEN
        changed := idivm.run_over(
            state, query,
            format('INSERT INTO %s (%s) SELECT * FROM (', state, listed),
            format(') AS f (%s) %s', listed,
                   'ORDER BY ' || (SELECT string_agg(quote_ident(name), ', ') FROM unnest(together) AS name)));
        -- At the creation of a view, indexes follow later, and so do statistics of small states. Other states are
        -- computed from large ones.
        IF EXISTS (SELECT FROM pg_class c
                   WHERE c.oid = state AND (c.relhasindex OR changed > 1000) AND c.reltuples < 0) THEN
            EXECUTE format('ANALYZE %s', state);
        END IF;
        RETURN changed;
    END IF;
    -- The rows that differ: f is a row of the query, t of the state. A bit of `part` says that a column is NULL.
    pairs := (
        SELECT string_agg(format(
            'SELECT t.ctid AS %1$s, f.* FROM (SELECT r.*, true AS %2$s FROM fresh AS r%6$s) AS f'
            ' FULL JOIN (SELECT r.ctid, r.* FROM %3$s AS r%6$s) AS t ON %7$s'
            ' WHERE t.ctid IS NULL OR f.%2$s IS NULL OR ROW(%4$s)::record *<> ROW(%5$s)::record',
            spare[1], spare[2], state, old_row, new_row, ' WHERE ' || compared.rows, coalesce(compared.equal, 'true')),
            ' UNION ALL ')
        FROM generate_series(0, (1 << cardinality(split)) - 1) AS part,
            LATERAL (
                SELECT string_agg(format('r.%I IS %s', k.name, CASE WHEN k.is_null THEN 'NULL' ELSE 'NOT NULL' END), ' AND ')
                        FILTER (WHERE k.place IS NOT NULL) AS rows,
                    string_agg(format(CASE WHEN k.name = ANY (nullable[4:]) THEN 'ARRAY[t.%1$I] = ARRAY[f.%1$I]'
                                      ELSE 't.%1$I = f.%1$I' END, k.name), ' AND ') FILTER (WHERE NOT k.is_null) AS equal
                FROM (SELECT name, place, coalesce((part >> place - 1) & 1 = 1, false) AS is_null
                      FROM unnest(key) AS name, array_position(split, name) AS place) AS k) AS compared);
    RETURN idivm.run_over(
        state, query,
        format('WITH fresh (%s) AS %s (SELECT %s FROM (', listed, CASE WHEN split <> '{}' THEN 'MATERIALIZED' END, typed),
        format(
            ') AS f (%2$s)), difference AS MATERIALIZED (SELECT f.* FROM (%7$s) AS f %6$s'
            '), gone AS (DELETE FROM %1$s AS t USING difference AS f WHERE t.ctid = f.%4$s AND f.%5$s IS NULL RETURNING 1'
            '), altered AS (UPDATE %1$s AS t SET %3$s FROM difference AS f WHERE t.ctid = f.%4$s AND f.%5$s RETURNING 1'
            '), come AS (INSERT INTO %1$s (%2$s) SELECT %8$s FROM difference AS f WHERE f.%4$s IS NULL RETURNING 1'
            ') SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM altered) + (SELECT count(*) FROM come)',
            state, listed, sets, spare[1], spare[2],
            'ORDER BY ' || (SELECT string_agg(format('f.%I', name), ', ') FROM unnest(key) AS name), pairs, new_row));
END
$$;
COMMENT ON FUNCTION idivm.recompute_state(regclass, text[], text[], text[], text, text[]) IS
    'changes a state table into the rows of its query, and writes only the difference';

-- Change the content of a view without a key into the rows of its definition, and return how many rows were
-- deleted and inserted. The columns `row_name` and `nth_name` of the state identify a row by a digest of its
-- values and a number among equal rows. A state without these columns computes them each time.
CREATE OR REPLACE FUNCTION idivm.recompute_bag(state regclass, definition regclass, row_name text, nth_name text, is_distinct boolean)
    RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    columns text[] := ARRAY(SELECT quote_ident(a.attname) FROM pg_attribute a
                            WHERE a.attrelid = definition AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum);
    -- Names that no column of the definition has.
    spare text[] := ARRAY(SELECT 'idivm_' || n FROM generate_series(1, 1700) AS n
                          WHERE 'idivm_' || n <> ALL (columns) ORDER BY n LIMIT 3);
    listed text := 'd.' || array_to_string(columns, ', d.');
    digest text := coalesce(quote_ident(row_name), spare[1]);
    number text := coalesce(quote_ident(nth_name), spare[2]);
    place text := spare[3];
    numbered text := format('SELECT q.*, (row_number() OVER (PARTITION BY q.%s))::integer AS %s FROM ', digest, number);
    identified text := format(', idivm.row_identity(ROW(%s)::text) AS %s FROM ', listed, digest);
    query text := format('SELECT %s%s%s AS d', listed, identified, definition);
    kept text := CASE
        WHEN row_name IS NULL THEN format('%s(SELECT d.ctid AS %s%s%s AS d) AS q', numbered, place, identified, state)
        ELSE format('SELECT d.ctid AS %s, d.%s, d.%s FROM %s AS d', place, digest, number, state) END;
BEGIN
    SET LOCAL max_parallel_workers_per_gather TO DEFAULT;
    IF row_name IS NOT NULL THEN
        columns := columns || digest || number;
    END IF;
    RETURN idivm.run_over(
        state, query,
        'WITH fresh AS (' || CASE WHEN is_distinct THEN format('SELECT q.*, 1 AS %s FROM ', number) ELSE numbered END || '(',
        format(
            ') AS q), kept AS (%1$s), difference AS MATERIALIZED ('
            'SELECT fresh.*, kept.%2$s FROM fresh FULL JOIN kept ON fresh.%3$s = kept.%3$s AND fresh.%4$s = kept.%4$s'
            ' WHERE fresh.%3$s IS NULL OR kept.%3$s IS NULL'
            '), gone AS (DELETE FROM %5$s AS t USING difference AS d WHERE t.ctid = d.%2$s RETURNING 1'
            '), come AS (INSERT INTO %5$s (%6$s) SELECT %6$s FROM difference AS d WHERE d.%2$s IS NULL RETURNING 1'
            ') SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM come)',
            kept, place, digest, number, state, array_to_string(columns, ', ')));
END
$$;
COMMENT ON FUNCTION idivm.recompute_bag(regclass, regclass, text, text, boolean) IS
    'changes the content of a view into the rows of its definition, and writes only the difference';
