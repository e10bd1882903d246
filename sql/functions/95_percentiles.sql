-- Percentiles between two neighboring values of a group.

-- The aggregate itself interpolates: on some processors its result differs in the last digit from the same formula. In
-- descending order, `low` is the larger value.
CREATE OR REPLACE FUNCTION idivm.percentile_between(low double precision, high double precision, part double precision)
    RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT CASE WHEN low > high THEN percentile_cont(part) WITHIN GROUP (ORDER BY x DESC)
                        ELSE percentile_cont(part) WITHIN GROUP (ORDER BY x) END
            FROM (VALUES (low), (high)) AS two (x));
