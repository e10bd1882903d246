-- Outer products: changes of a matrix, a table with a key of two columns, that are products of vectors.

-- A matrix, row by row, as a product: the numbers that its rows are multiples by, and behind them the row that
-- they are multiples of. NULL if it is none. Nothing is rounded: the row is taken as a multiple of what
-- divides it, and then consists of whole numbers.
CREATE FUNCTION idivm.rank_one(entries numeric[], rows integer) RETURNS numeric[]
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wide integer := cardinality(entries) / rows;
    pivot integer;
    places integer;
    divisor numeric := 0;
    line numeric[];
    factors numeric[];
BEGIN
    SELECT n, (SELECT max(scale(e)) FROM unnest(entries) AS e) INTO pivot, places
    FROM unnest(entries) WITH ORDINALITY AS e (x, n) WHERE x <> 0 ORDER BY n LIMIT 1;
    IF pivot IS NULL THEN
        RETURN array_fill(0::numeric, ARRAY[rows + wide]);
    END IF;
    line := entries[(pivot - 1) / wide * wide + 1 : ((pivot - 1) / wide + 1) * wide];
    FOR j IN 1 .. wide LOOP
        divisor := gcd(divisor, line[j]);
    END LOOP;
    line := ARRAY(SELECT div(x, divisor) FROM unnest(line) WITH ORDINALITY AS l (x, j) ORDER BY j);
    pivot := (pivot - 1) % wide + 1;
    factors := ARRAY(
        SELECT div(x * ('1e' || places)::numeric, line[pivot]) * ('1e-' || places)::numeric
        FROM unnest(entries) WITH ORDINALITY AS e (x, n) WHERE (n - 1) % wide + 1 = pivot ORDER BY n);
    IF entries <> ARRAY(
        SELECT f.x * l.x FROM unnest(factors) WITH ORDINALITY AS f (x, i), unnest(line) WITH ORDINALITY AS l (x, j)
        ORDER BY i, j
    ) THEN
        RETURN NULL;
    END IF;
    RETURN factors || line;
END
$$;

CREATE FUNCTION idivm.apply_outer(matrix regclass, u regclass, v regclass) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    key name[];
    entry name[];
    vectors name[];
    changed bigint;
BEGIN
    SELECT array_agg(a.attname ORDER BY k.place) INTO key
    FROM pg_index i, unnest(i.indkey[:i.indnkeyatts - 1]::smallint[]) WITH ORDINALITY AS k (attnum, place)
    JOIN pg_attribute a ON a.attnum = k.attnum
    WHERE i.indrelid = matrix AND i.indisprimary AND a.attrelid = matrix;
    SELECT array_agg(a.attname) INTO entry FROM pg_attribute a
    WHERE a.attrelid = matrix AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL (key);
    IF cardinality(key) IS DISTINCT FROM 2 OR cardinality(entry) IS DISTINCT FROM 1 THEN
        RAISE EXCEPTION '% is not a matrix', matrix USING ERRCODE = 'wrong_object_type',
            HINT = 'A matrix is a table with a primary key of two columns and one other column, the entry.';
    END IF;
    SELECT array_agg(a.attname ORDER BY r.place, a.attnum) INTO vectors
    FROM unnest(ARRAY[u, v]::oid[]) WITH ORDINALITY AS r (id, place)
    JOIN pg_attribute a ON a.attrelid = r.id WHERE a.attnum > 0 AND NOT a.attisdropped;
    IF cardinality(vectors) IS DISTINCT FROM 4
       OR (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = u AND a.attnum > 0 AND NOT a.attisdropped) <> 2 THEN
        RAISE EXCEPTION '% and % are not two vectors', u, v USING ERRCODE = 'wrong_object_type',
            HINT = 'A vector is a relation of two columns, the index and the number.';
    END IF;
    -- Names of relations are quoted as regclass prints them.
    EXECUTE format(
        'INSERT INTO %s AS m (%I, %I, %I) SELECT u.%I, v.%I, u.%I * v.%I FROM %s AS u CROSS JOIN %s AS v'
        ' WHERE u.%5$I IS NOT NULL AND u.%7$I * v.%8$I <> 0'
        ' ON CONFLICT (%2$I, %3$I) DO UPDATE SET %4$I = m.%4$I + excluded.%4$I',
        matrix, key[1], key[2], entry[1], vectors[1], vectors[3], vectors[2], vectors[4], u, v);
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END
$$;
COMMENT ON FUNCTION idivm.apply_outer(regclass, regclass, regclass) IS
    'adds the product of two vectors, relations of index and number, to the entries of a matrix';
