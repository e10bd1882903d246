-- Percentiles between two neighboring values of a group.

-- The aggregate itself interpolates: on some processors its result differs in the last digit from the same formula.
CREATE OR REPLACE FUNCTION idivm.percentile_between(low double precision, high double precision, part double precision)
    RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT percentile_cont(part) WITHIN GROUP (ORDER BY x) FROM (VALUES (low), (high)) AS two (x));
