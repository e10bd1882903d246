-- What a refresh costs beside its program: what it asks of a log or of the catalog is asked by
-- functions that plan once a session, and once. Their tables are small and their plans simple: what
-- the parameters are makes no better plan, and so they and all that they call take generic ones.

-- What the log of a source has for a view, by a function of the source's own.
CREATE OR REPLACE FUNCTION idivm.create_due(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    base text := 's' || source;
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION idivm_log.%I(since idivm.watermark, OUT pending bigint, OUT truncated boolean, OUT own bigint)'
        ' LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L',
        base || '_due',
        format('BEGIN
    SELECT count(*), coalesce(bool_or(c.op = ''T''), false),
           max(c.seq) FILTER (WHERE c.xid = pg_current_xact_id_if_assigned())
    INTO pending, truncated, own
    FROM idivm_log.%I AS c WHERE idivm.is_pending(c.xid, c.seq, since, %s);
END', base, source));
END
$$;

-- An index of the log by transaction, which finds the few rows that a kept view has yet to consume.
CREATE FUNCTION idivm.index_log(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    segment text;
BEGIN
    FOREACH segment IN ARRAY ARRAY['_a', '_b'] LOOP
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON idivm_log.%I (xid)',
                       's' || source || segment || '_xid', 's' || source || segment);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION idivm.sync_modes() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    one record;
    source integer;
BEGIN
    FOR source IN
        SELECT DISTINCT vs.source FROM idivm.view_sources vs
        WHERE vs.view IN (SELECT idivm.kept_views())
          AND to_regclass(format('idivm_log.%I', 's' || vs.source || '_a_xid')) IS NULL
        ORDER BY vs.source
    LOOP
        PERFORM idivm.index_log(source);
    END LOOP;
    -- Others pay nothing for an index.
    FOR one IN
        SELECT c.oid::regclass AS index FROM pg_class c
        WHERE c.relnamespace = 'idivm_log'::regnamespace AND c.relname ~ '^s[0-9]+_[ab]_xid$'
          AND substring(c.relname, '^s([0-9]+)')::integer NOT IN (
              SELECT vs.source FROM idivm.view_sources vs WHERE vs.view IN (SELECT idivm.kept_views()))
    LOOP
        EXECUTE format('DROP INDEX %s', one.index);
    END LOOP;
    FOR one IN
        WITH wanted AS (
            SELECT m.member::oid AS member, m.source, d.eager, d.on_commit
            FROM idivm.duties() d
            JOIN idivm.source_members m ON m.source = d.source
            JOIN pg_class c ON c.oid = m.member
        ), present AS (
            SELECT t.tgrelid AS member, substring(t.tgname, '^idivm_([0-9]+)_upkeep$')::integer AS source,
                   encode(t.tgargs, 'escape') AS arguments
            FROM pg_trigger t WHERE t.tgname ~ '^idivm_[0-9]+_upkeep$'
        )
        SELECT coalesce(w.member, p.member)::regclass AS member, coalesce(w.source, p.source) AS source,
               w.member IS NULL AS gone, w.eager, w.on_commit
        FROM wanted w FULL JOIN present p ON p.member = w.member AND p.source = w.source
        WHERE p.arguments IS DISTINCT FROM w.eager::text || E'\\000' || w.on_commit::text || E'\\000'
        ORDER BY 1, 2
    LOOP
        PERFORM idivm.keep_by_triggers(one.member, one.source, one.gone, one.eager, one.on_commit);
    END LOOP;
END
$$;

-- Gives a table the triggers of its duties for kept views, or takes them off.
CREATE FUNCTION idivm.keep_by_triggers(member regclass, source integer, gone boolean, eager integer[], on_commit integer[])
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    begins text := 'idivm_' || source || '_begin';
    -- By its name it fires after capture.
    ends text := 'idivm_' || source || '_upkeep';
BEGIN
    IF gone THEN
        EXECUTE format('DROP TRIGGER %I ON %s', ends, member);
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', begins, member);
        RETURN;
    END IF;
    EXECUTE format('CREATE OR REPLACE TRIGGER %I BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
                   ' FOR EACH STATEMENT EXECUTE FUNCTION idivm.statement_begins()', begins, member);
    EXECUTE format('CREATE OR REPLACE TRIGGER %I AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
                   ' FOR EACH STATEMENT EXECUTE FUNCTION idivm.statement_ends(%L, %L)',
                   ends, member, eager, on_commit);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', member, begins);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', member, ends);
END
$$;

-- What the logs have for a view: NULL nothing, 'C' changes, 'R' a truncation among them; and the
-- statements of this very transaction that it has consumed with them.
CREATE FUNCTION idivm.pending_of(view_id integer, since idivm.watermark, OUT kind "char", OUT marks jsonb)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    source integer;
    log record;
BEGIN
    IF since.own_xid = pg_current_xact_id_if_assigned() THEN
        marks := since.own_marks;
    END IF;
    FOR source IN SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id LOOP
        IF to_regproc(format('idivm_log.%I', 's' || source || '_due')) IS NULL THEN
            -- A source from before every one had its function.
            PERFORM idivm.create_due(source);
        END IF;
        EXECUTE format('SELECT * FROM idivm_log.%I($1)', 's' || source || '_due') INTO log USING since;
        IF log.pending > 0 THEN
            kind := CASE WHEN log.truncated OR kind = 'R' THEN 'R' ELSE 'C' END;
        END IF;
        IF log.own IS NOT NULL THEN
            marks := coalesce(marks, '{}') || jsonb_build_object(source, log.own);
        END IF;
    END LOOP;
END
$$;

-- Whether one of these views is kept and yet behind: something happened that no trigger sees.
CREATE OR REPLACE FUNCTION idivm.kept_are_behind(view_ids integer[]) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    view_id integer;
BEGIN
    IF idivm.open_statements() = 0 THEN
        FOR view_id IN SELECT id FROM idivm.kept_views() AS id WHERE id = ANY (view_ids) LOOP
            IF idivm.pending_kind(view_id) IS NOT NULL THEN
                RETURN true;
            END IF;
        END LOOP;
    END IF;
    RETURN false;
END
$$;
