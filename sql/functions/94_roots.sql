-- Roots of variances.

-- Return the root with as many digits after the decimal point as the number has, as PostgreSQL's stddev does; its sqrt may
-- return more digits. The root is computed to so many digits first that rounding it twice gives the same result: the
-- number differs from the square of any middle between two results by 10^-(2 * scale + 2) or more.
CREATE OR REPLACE FUNCTION idivm.square_root(x numeric) RETURNS numeric
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN round(sqrt(round(x, 2 * scale(x) + length(x::text))), scale(x));
COMMENT ON FUNCTION idivm.square_root(numeric) IS 'the root of a number, rounded as in a standard deviation';
