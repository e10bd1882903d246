-- The dial of a view over heavy and light values: what changes and reads cost, and the choice of epsilon.

-- For each epsilon that a dial has, return what the present degrees of values lead to: how many rows an average change meets,
-- how many rows are stored for light values, how many rows a read of the content joins for heavy values, how many values
-- are heavy, and how many rows are written to come from the present epsilon to this one. Each degree counts the rows of
-- several atoms; they are taken to share them equally. At most `delta` atoms are met in turn, and `width` combined.
CREATE OR REPLACE FUNCTION idivm.dial_curve(base bigint, present double precision, degrees regclass[], degree_columns text[],
                                            atoms integer[], delta double precision, width double precision)
    RETURNS TABLE (epsilon double precision, met double precision, light_rows double precision,
                   heavy_rows double precision, heavy_values bigint, moved_rows double precision)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY EXECUTE (
        SELECT format($query$
            WITH v AS (SELECT d, d / k AS each, count(*)::float8 AS n FROM (%s) AS v (d, k) GROUP BY d, k),
                 c AS (SELECT e / 8.0::float8 AS epsilon, power($1, e / 8.0::float8) AS t, power($1, $2) AS now
                       FROM generate_series(0, 8) AS e)
            SELECT c.epsilon,
                   coalesce(sum(n * d * power(each, $3)) FILTER (WHERE d < t) / nullif(sum(n * d), 0), 0),
                   coalesce(sum(n * power(each, $4)) FILTER (WHERE d < t), 0),
                   coalesce(sum(n * power(each, $4)) FILTER (WHERE d >= t), 0),
                   coalesce(sum(n) FILTER (WHERE d >= t), 0)::bigint,
                   coalesce(sum(n * power(each, $4)) FILTER (WHERE (d < t) <> (d < now)), 0)
            FROM c LEFT JOIN v ON true GROUP BY c.epsilon ORDER BY c.epsilon
            $query$,
            string_agg(format('SELECT %I::float8, %s::float8 FROM %s', s.name, s.atoms, s.state), ' UNION ALL '))
        FROM unnest(degrees, degree_columns, atoms) AS s (state, name, atoms))
    USING base::float8, present, delta, width;
END
$$;
COMMENT ON FUNCTION idivm.dial_curve(bigint, double precision, regclass[], text[], integer[], double precision, double precision) IS
    'what the present degrees of values lead to, for each epsilon that a dial has';

-- Return the expected cost of so many changes and reads for each epsilon, and of coming there, in steps; `steps` is what
-- the reads took. To write a row that a change meets takes about as long as 3 steps, and 1.5 if many rows are written
-- together. If any value is heavy, a read of the first rows merges buckets, of which it opens one for each heavy value.
-- The rest of its steps grows with the rows that it joins, of which each takes several steps, while a listed row takes a
-- single step. If readers read few of the rows, what a read took while the dial showed another epsilon replaces that
-- estimate. No more rows are stored for light values than epsilon = 1/2 may store, so that a dial fills no disk.
CREATE OR REPLACE FUNCTION idivm.dial_costs(base bigint, present double precision, degrees regclass[], degree_columns text[],
                                            atoms integer[], delta double precision, width double precision,
                                            changes double precision, reads double precision, steps double precision,
                                            points jsonb)
    RETURNS TABLE (epsilon double precision, cost double precision, moving double precision)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    each double precision := coalesce(steps / nullif(reads, 0), 0);
BEGIN
    RETURN QUERY
        WITH curve AS (
            SELECT c.*, CASE WHEN c.heavy_values > 0 THEN 1500.0 + 20.0 * c.heavy_values ELSE 0 END AS opening,
                   greatest(3 * c.heavy_rows + c.light_rows, 1) AS joined,
                   CASE WHEN (points -> c.epsilon::text ->> 'reads')::float8 >= 10
                        THEN (points -> c.epsilon::text ->> 'read steps')::float8
                             / (points -> c.epsilon::text ->> 'reads')::float8 END AS known
            FROM idivm.dial_curve(base, present, degrees, degree_columns, atoms, delta, width) AS c)
        SELECT c.epsilon,
               3 * changes * c.met + reads * CASE
                   WHEN c.epsilon = now.epsilon THEN each
                   WHEN c.known < c.joined / 10 AND each < now.joined / 10 THEN c.known
                   WHEN now.opening > each THEN each * c.opening / now.opening
                   ELSE c.opening + (each - now.opening) * c.joined / now.joined END,
               1.5 * c.moved_rows + 1000
        FROM curve AS c, (SELECT curve.* FROM curve ORDER BY abs(curve.epsilon - present) LIMIT 1) AS now
        WHERE c.epsilon <= 0.5 OR c.light_rows <= power(base::float8, 1 + (width - 1) / 2);
END
$$;
COMMENT ON FUNCTION idivm.dial_costs(bigint, double precision, regclass[], text[], integer[], double precision, double precision,
                                     double precision, double precision, double precision, jsonb) IS
    'the expected cost of changes and reads for each epsilon that a dial has';

-- Note what changes have cost and what readers have read since the last look, which was about a second ago, because
-- PostgreSQL's statistics are about as old. Refreshes have counted the changes, their own steps, and their time. Only after
-- ten times the work of a comparison, compare the costs of these changes and reads for each epsilon. If they would have been
-- lower by more than it takes to divide the values again, turn the dial; the next refresh divides them. Where the present
-- epsilon is the best, the comparison starts again, so that an earlier mix does not count against a later one.
CREATE OR REPLACE FUNCTION idivm.turn_dial(dial regclass, dial_columns text[], observations regclass, observed_column text,
                                           partitioned regclass, base_column text, read regclass[], scanned regclass[],
                                           degrees regclass[], degree_columns text[], atoms integer[],
                                           delta double precision, width double precision) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    relations oid[] := ARRAY(SELECT t::oid FROM unnest(read) AS t
                             UNION ALL SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = ANY (read));
    once oid[] := ARRAY(SELECT t::oid FROM unnest(scanned) AS t
                        UNION ALL SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = ANY (scanned));
    present double precision;
    wanted double precision;
    seen jsonb;
    point jsonb;
    changes double precision;
    own_steps double precision;
    own_scans double precision;
    passed interval;
    all_steps double precision;
    all_scans double precision;
    more_steps double precision;
    more_scans double precision;
    steps double precision;
    reads double precision;
    work double precision;
    base bigint;
BEGIN
    EXECUTE format('SELECT d.%I, d.%I, d.%I, d.%I, d.%I, o.%I, p.%I FROM %s AS d, %s AS o, %s AS p',
                   dial_columns[1], dial_columns[4], dial_columns[5], dial_columns[6], dial_columns[7],
                   observed_column, base_column, dial, observations, partitioned)
    INTO present, changes, own_steps, own_scans, passed, seen, base;
    wanted := present;
    -- What this session has not reported yet is added.
    all_steps := (SELECT sum(pg_stat_get_numscans(r) + pg_stat_get_tuples_returned(r)
                             + pg_stat_get_xact_numscans(r) + pg_stat_get_xact_tuples_returned(r)) FROM unnest(relations) AS r);
    all_scans := (SELECT sum(pg_stat_get_numscans(r) + pg_stat_get_xact_numscans(r)) FROM unnest(once) AS r);
    more_steps := all_steps - (seen ->> 'steps everywhere')::float8;
    more_scans := all_scans - (seen ->> 'scans everywhere')::float8;
    steps := greatest(0, more_steps - own_steps);
    reads := greatest(0, more_scans - own_scans);
    IF base IS DISTINCT FROM (seen ->> 'base')::bigint THEN
        -- With other data, another epsilon would cost something else.
        seen := seen || jsonb_build_object('base', base, 'points', jsonb_build_object());
    END IF;
    work := coalesce((seen ->> 'work')::float8, 0) + own_steps + steps;
    point := coalesce(seen -> 'points' -> present::text, '{}');
    seen := seen || jsonb_build_object(
        'work', work,
        'steps everywhere', all_steps,
        'scans everywhere', all_scans,
        'changes', coalesce((seen ->> 'changes')::float8, 0) + changes,
        'reads', coalesce((seen ->> 'reads')::float8, 0) + reads,
        'read steps', coalesce((seen ->> 'read steps')::float8, 0) + steps,
        'points', coalesce(seen -> 'points', '{}') || jsonb_build_object(present::text, jsonb_build_object(
            'changes', coalesce((point ->> 'changes')::float8, 0) + changes,
            'seconds', coalesce((point ->> 'seconds')::float8, 0) + extract(epoch FROM passed),
            'reads', coalesce((point ->> 'reads')::float8, 0) + reads,
            'read steps', coalesce((point ->> 'read steps')::float8, 0) + steps,
            'rows', (SELECT sum(pg_stat_get_live_tuples(t)) FROM unnest(read) AS t))));
    IF work > 1000 + 10 * (SELECT sum(greatest(c.reltuples, 0)) FROM pg_class c WHERE c.oid = ANY (degrees)) THEN
        WITH costs AS MATERIALIZED (
            SELECT * FROM idivm.dial_costs(
                base, present, degrees, degree_columns, atoms, delta, width, (seen ->> 'changes')::float8,
                (seen ->> 'reads')::float8, (seen ->> 'read steps')::float8, seen -> 'points'))
        SELECT CASE WHEN c.cost + c.moving < now.cost THEN c.epsilon WHEN c.epsilon <> present THEN present END
        INTO wanted
        FROM costs AS c, (SELECT costs.cost FROM costs ORDER BY abs(costs.epsilon - present) LIMIT 1) AS now
        ORDER BY c.cost, abs(c.epsilon - present) LIMIT 1;
        seen := seen || '{"work": 0}';
        IF wanted IS DISTINCT FROM present THEN
            seen := seen || '{"changes": 0, "reads": 0, "read steps": 0}';
        END IF;
    END IF;
    EXECUTE format('UPDATE %s SET %I = $1', observations, observed_column) USING seen;
    -- Own steps that the statistics do not contain yet must not be taken for reads later.
    EXECUTE format('UPDATE %s SET (%I, %I, %I, %I, %I, %I, %I, %I) = ROW ($1, $2, $3, 0, $4, $5, $6, $7)',
                   dial, dial_columns[1], dial_columns[2], dial_columns[3], dial_columns[4], dial_columns[5], dial_columns[6],
                   dial_columns[7], dial_columns[8])
    USING coalesce(wanted, present), relations, once,
          CASE WHEN more_steps >= 0 THEN greatest(0, own_steps - more_steps) ELSE 0 END,
          CASE WHEN more_scans >= 0 THEN greatest(0, own_scans - more_scans) ELSE 0 END,
          interval '0', clock_timestamp() + interval '1 second';
    -- Report the steps of this transaction soon.
    PERFORM pg_stat_force_next_flush();
END
$$;
COMMENT ON FUNCTION idivm.turn_dial(regclass, text[], regclass, text, regclass, text, regclass[], regclass[], regclass[], text[],
                                    integer[], double precision, double precision) IS
    'notes what changes and reads of a view cost, and chooses the epsilon with the lowest cost';
