-- What was broken off is looked at again once it is locked.

-- As before; but who made or replaced a view may have ended since it was found, and it is whole then.
CREATE OR REPLACE FUNCTION idivm.sweep() RETURNS integer
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer;
    swept integer := 0;
BEGIN
    FOR view_id IN
        SELECT b.id
        FROM idivm.refresh_order(ARRAY(SELECT id FROM idivm.views)) WITH ORDINALITY AS o (id, place)
        JOIN idivm.broken_off b USING (id)
        ORDER BY o.place DESC
    LOOP
        IF view_id IN (SELECT idivm.kept_views()) THEN
            PERFORM idivm.hold_writers(ARRAY[view_id], true);
        END IF;
        IF pg_try_advisory_xact_lock(idivm.lock_class(), view_id)
           AND EXISTS (SELECT FROM idivm.broken_off b WHERE b.id = view_id) THEN
            PERFORM idivm.forget(view_id);
            swept := swept + 1;
        END IF;
    END LOOP;
    RETURN swept;
END
$$;

CREATE VIEW idivm.broken_off AS
SELECT v.id FROM idivm.views v
WHERE v.status = 'building'
   OR NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.definition)
   OR NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.relation)
      AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.state);
COMMENT ON VIEW idivm.broken_off IS 'views that were not made to the end, or taken apart: those without a creator who still is at it are swept away';
