-- Replaces functions by their C forms, where the server has the modules, a superuser runs this, and the setting
-- idivm.accelerate is not off. Each does what the function of the same name in sql/functions does, in less time.
DO $module$
BEGIN
    IF current_setting('idivm.accelerate', true) IS NOT DISTINCT FROM 'off'
       OR NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        RETURN;
    END IF;
    -- A module that is not there leaves its functions as they are.
    BEGIN
        IF to_regprocedure('idivm.capture_rows()') IS NULL THEN
            CREATE FUNCTION idivm.capture_rows() RETURNS trigger
                LANGUAGE c AS 'idivm_capture', 'idivm_capture_rows';
            COMMENT ON FUNCTION idivm.capture_rows() IS 'logs the rows of a statement; called by the triggers of captured tables';
        END IF;
    EXCEPTION WHEN undefined_file THEN
        NULL;
    END;
    BEGIN
        CREATE OR REPLACE FUNCTION idivm.triple_step(state double precision[], a double precision[], b double precision[])
            RETURNS double precision[]
            LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'idivm_triples', 'idivm_triple_step';
        CREATE OR REPLACE FUNCTION idivm.triple_lift_step(state double precision[], times bigint, x double precision[])
            RETURNS double precision[]
            LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'idivm_triples', 'idivm_triple_lift_step';
        CREATE OR REPLACE FUNCTION idivm.triple_products(t double precision[], places integer[])
            RETURNS double precision[]
            LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'idivm_triples', 'idivm_triple_products';
        CREATE OR REPLACE FUNCTION idivm.solved(a double precision[], ridge double precision)
            RETURNS double precision[]
            LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'idivm_triples', 'idivm_solved';
        CREATE OR REPLACE FUNCTION idivm.descended(a double precision[], start double precision[], ridge double precision,
                                                   tolerance double precision, steps integer)
            RETURNS double precision[]
            LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'idivm_triples', 'idivm_descended';
    EXCEPTION WHEN undefined_file THEN
        NULL;
    END;
    BEGIN
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
    EXCEPTION WHEN undefined_file THEN
        NULL;
    END;
    BEGIN
        CREATE OR REPLACE FUNCTION idivm.has_drifted(view_id integer) RETURNS boolean
            LANGUAGE c STRICT AS 'idivm_upkeep', 'idivm_has_drifted';
        CREATE OR REPLACE FUNCTION idivm.drifted_among(view_ids integer[]) RETURNS integer[]
            LANGUAGE c STRICT AS 'idivm_upkeep', 'idivm_drifted_among';
        CREATE OR REPLACE FUNCTION idivm.refusal(view_id integer) RETURNS text
            LANGUAGE c STRICT AS 'idivm_upkeep', 'idivm_refusal';
        CREATE OR REPLACE FUNCTION idivm.run_program(view_id integer, since idivm.watermark, rebuild boolean,
                                                     content_only boolean,
                                                     OUT changed bigint, OUT kind "char", OUT marks jsonb)
            LANGUAGE c AS 'idivm_upkeep', 'idivm_run_program';
        CREATE OR REPLACE FUNCTION idivm.usual_read(view_id integer, merged integer[], constant integer[], most_bytes bigint)
            RETURNS "char"
            LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'idivm_upkeep', 'idivm_usual_read';
        CREATE OR REPLACE FUNCTION idivm.has_entries(segment regclass, other regclass) RETURNS boolean
            LANGUAGE c STRICT AS 'idivm_upkeep', 'idivm_has_entries';
        CREATE OR REPLACE FUNCTION idivm.has_any(source integer, since idivm.watermark) RETURNS boolean
            LANGUAGE c STRICT AS 'idivm_upkeep', 'idivm_has_any';
    EXCEPTION WHEN undefined_file THEN
        NULL;
    END;
    BEGIN
        CREATE OR REPLACE FUNCTION idivm.writer(OUT open integer, OUT pending integer[], OUT later integer[], OUT queued integer[])
            LANGUAGE c AS 'idivm_writers', 'idivm_writer';
        CREATE OR REPLACE FUNCTION idivm.note_writer(open integer, pending integer[], later integer[], queued integer[])
            RETURNS void
            LANGUAGE c AS 'idivm_writers', 'idivm_note_writer';
        CREATE OR REPLACE FUNCTION idivm.clear_writer() RETURNS void
            LANGUAGE c AS 'idivm_writers', 'idivm_clear_writer';
        CREATE OR REPLACE FUNCTION idivm.statement_begins() RETURNS trigger
            LANGUAGE c AS 'idivm_writers', 'idivm_statement_begins';
        CREATE OR REPLACE FUNCTION idivm.end_statement(pending text, later text) RETURNS void
            LANGUAGE c STRICT AS 'idivm_writers', 'idivm_end_statement';
    EXCEPTION WHEN undefined_file THEN
        NULL;
    END;
END
$module$;

-- Event triggers, which only a superuser can make. They come with the extension, so that a dump of a
-- database without it restores without a superuser.
DO $module$
DECLARE
    made name;
BEGIN
    IF to_regprocedure('idivm.guard_views()') IS NULL
       OR NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)
       OR NOT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'idivm') THEN
        RETURN;
    END IF;
    CALL idivm.guard_views();
    FOR made IN
        SELECT t.evtname FROM pg_catalog.pg_event_trigger AS t
        WHERE t.evtname IN ('idivm_refuse_replacement', 'idivm_note_cascade')
          AND NOT EXISTS (
              SELECT FROM pg_catalog.pg_depend AS d
              WHERE d.classid = 'pg_catalog.pg_event_trigger'::regclass AND d.objid = t.oid AND d.deptype = 'e')
    LOOP
        EXECUTE format('ALTER EXTENSION idivm ADD EVENT TRIGGER %I', made);
    END LOOP;
END
$module$;
