-- The threshold base N of relations in heavy and light parts: N/4 <= size < N, where N/4 is rounded
-- down. While the size stays within, values that change their part do so one by one.

CREATE FUNCTION idivm.threshold_base(base bigint, size bigint) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WHILE size >= base LOOP
        base := 2 * base;
    END LOOP;
    WHILE size < base / 4 LOOP
        base := base / 2 - 1;
    END LOOP;
    RETURN base;
END
$$;
COMMENT ON FUNCTION idivm.threshold_base(bigint, bigint) IS
    'the threshold base after the data have got another size: doubled or halved as long as that asks for it';
