-- What has a form in C gets it, where the server has the modules and a superuser runs this. It is no
-- migration: without them all is the same, in plpgsql, and takes more time.
DO $module$
DECLARE
    may boolean := rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user;
    triples regprocedure := to_regprocedure(
        'idivm.triple_step(double precision[], double precision[], double precision[])');
    wanted boolean := current_setting('idivm.accelerate', true) IS DISTINCT FROM 'off';
BEGIN
    BEGIN
        IF may AND to_regprocedure('idivm.capture_rows()') IS NULL THEN
            CREATE FUNCTION idivm.capture_rows() RETURNS trigger
                LANGUAGE c AS 'idivm', 'idivm_capture_rows';
            COMMENT ON FUNCTION idivm.capture_rows() IS 'logs the rows of a statement; called by the triggers of captured tables';
        END IF;
    EXCEPTION WHEN undefined_file THEN
        -- The module is not there.
        NULL;
    END;
    IF to_regprocedure('idivm.plain_triples()') IS NULL THEN
        -- An older version of the extension.
        RETURN;
    END IF;
    BEGIN
        IF may AND wanted THEN
            CREATE OR REPLACE FUNCTION idivm.triple_step(state double precision[], a double precision[], b double precision[])
                RETURNS double precision[]
                LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'idivm_triples', 'idivm_triple_step';
            CREATE OR REPLACE FUNCTION idivm.triple_lift_step(state double precision[], times bigint, x double precision[])
                RETURNS double precision[]
                LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'idivm_triples', 'idivm_triple_lift_step';
            CREATE OR REPLACE FUNCTION idivm.triple_products(t double precision[], places integer[])
                RETURNS double precision[]
                LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'idivm_triples', 'idivm_triple_products';
        END IF;
        IF may AND wanted AND to_regprocedure('idivm.plain_models()') IS NOT NULL THEN
            CREATE OR REPLACE FUNCTION idivm.solved(a double precision[], ridge double precision)
                RETURNS double precision[]
                LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'idivm_triples', 'idivm_solved';
            CREATE OR REPLACE FUNCTION idivm.descended(a double precision[], start double precision[], ridge double precision,
                                                       tolerance double precision, steps integer)
                RETURNS double precision[]
                LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'idivm_triples', 'idivm_descended';
        END IF;
        IF may AND wanted AND to_regprocedure('idivm.plain_mixed()') IS NOT NULL THEN
            CREATE OR REPLACE FUNCTION idivm.mixed_product(x idivm.feature[], places integer[]) RETURNS idivm.mixed_triple
                LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'idivm_mixed', 'idivm_mixed_product';
            CREATE OR REPLACE FUNCTION idivm.mixed_total(elements idivm.mixed_triple[]) RETURNS idivm.mixed_triple
                LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'idivm_mixed', 'idivm_mixed_total';
            CREATE OR REPLACE FUNCTION idivm.mixed_plus(a idivm.mixed_triple, b idivm.mixed_triple) RETURNS idivm.mixed_triple
                LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'idivm_mixed', 'idivm_mixed_plus';
            CREATE OR REPLACE FUNCTION idivm.mixed_times(x idivm.mixed_triple, y idivm.mixed_triple) RETURNS idivm.mixed_triple
                LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'idivm_mixed', 'idivm_mixed_times';
            CREATE OR REPLACE FUNCTION idivm.mixed_multiple(element idivm.mixed_triple, times bigint) RETURNS idivm.mixed_triple
                LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'idivm_mixed', 'idivm_mixed_multiple';
            CREATE OR REPLACE FUNCTION idivm.mixed_shown(n bigint, t idivm.mixed_triple, m integer)
                RETURNS idivm.mixed_covariance
                LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'idivm_mixed', 'idivm_mixed_shown';
            CREATE OR REPLACE FUNCTION idivm.mixed_sum_step(state internal, x idivm.mixed_triple, y idivm.mixed_triple, n bigint)
                RETURNS internal
                LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'idivm_mixed', 'idivm_mixed_sum_step';
            CREATE OR REPLACE FUNCTION idivm.mixed_lift_step(state internal, n bigint, x idivm.feature[], places integer[])
                RETURNS internal
                LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'idivm_mixed', 'idivm_mixed_lift_step';
            CREATE OR REPLACE FUNCTION idivm.mixed_sum_total(state internal) RETURNS idivm.mixed_triple
                LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'idivm_mixed', 'idivm_mixed_sum_total';
            CREATE OR REPLACE AGGREGATE idivm.mixed_sum(x idivm.mixed_triple, y idivm.mixed_triple, n bigint) (
                SFUNC = idivm.mixed_sum_step, STYPE = internal, FINALFUNC = idivm.mixed_sum_total
            );
            CREATE OR REPLACE AGGREGATE idivm.mixed_lift(n bigint, x idivm.feature[], places integer[]) (
                SFUNC = idivm.mixed_lift_step, STYPE = internal, FINALFUNC = idivm.mixed_sum_total
            );
        END IF;
    EXCEPTION WHEN undefined_file THEN
        wanted := false;
    END;
    -- A dump that came to a server without the module lacks the functions.
    IF triples IS NULL OR NOT wanted AND EXISTS (
        SELECT FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
        WHERE p.oid = triples AND l.lanname = 'c'
    ) THEN
        CALL idivm.plain_triples();
        IF to_regprocedure('idivm.plain_models()') IS NOT NULL THEN
            CALL idivm.plain_models();
        END IF;
        IF to_regprocedure('idivm.plain_mixed()') IS NOT NULL THEN
            CALL idivm.plain_mixed();
        END IF;
    END IF;
END
$module$;

DO $module$
DECLARE
    lost boolean := to_regprocedure('idivm.has_drifted(integer)') IS NULL
        OR to_regprocedure('idivm.run_program(integer, idivm.watermark, boolean)') IS NULL
        OR to_regprocedure('idivm.has_entries(regclass, regclass)') IS NULL
        OR to_regprocedure('idivm.end_statement(text, text)') IS NULL;
    wanted boolean := current_setting('idivm.accelerate', true) IS DISTINCT FROM 'off';
BEGIN
    IF to_regprocedure('idivm.plain_upkeep()') IS NULL THEN
        -- An older version of the extension.
        RETURN;
    END IF;
    BEGIN
        IF wanted AND (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
            CREATE OR REPLACE FUNCTION idivm.has_drifted(view_id integer) RETURNS boolean
                LANGUAGE c STRICT AS 'idivm_upkeep', 'idivm_has_drifted';
            CREATE OR REPLACE FUNCTION idivm.run_program(view_id integer, since idivm.watermark, rebuild boolean,
                                                         OUT changed bigint, OUT kind "char", OUT marks jsonb)
                LANGUAGE c AS 'idivm_upkeep', 'idivm_run_program';
            IF to_regprocedure('idivm.end_statement_in_full(integer[], integer[])') IS NOT NULL THEN
                CREATE OR REPLACE FUNCTION idivm.has_entries(one regclass, other regclass) RETURNS boolean
                    LANGUAGE c STRICT AS 'idivm_upkeep', 'idivm_has_entries';
                CREATE OR REPLACE FUNCTION idivm.end_statement(due text, later text) RETURNS void
                    LANGUAGE c STRICT AS 'idivm_upkeep', 'idivm_end_statement';
            END IF;
            IF to_regprocedure('idivm.has_any(integer, idivm.watermark)') IS NOT NULL THEN
                CREATE OR REPLACE FUNCTION idivm.has_any(source integer, since idivm.watermark) RETURNS boolean
                    LANGUAGE c STRICT AS 'idivm_upkeep', 'idivm_has_any';
            END IF;
        END IF;
    EXCEPTION WHEN undefined_file THEN
        wanted := false;
    END;
    IF lost OR NOT wanted AND EXISTS (
        SELECT FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
        WHERE p.oid = to_regprocedure('idivm.has_drifted(integer)') AND l.lanname = 'c'
    ) THEN
        CALL idivm.plain_upkeep();
        IF to_regprocedure('idivm.plain_due()') IS NOT NULL THEN
            CALL idivm.plain_due();
        END IF;
    END IF;
END
$module$;
