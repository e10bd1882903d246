-- Schedules: when views are refreshed. The option schedule of a view holds an interval or five fields as cron has them,
-- so that dumps, replaced and restored views keep it. A job of pg_cron refreshes the view where the role that schedules
-- it may have one; idivm serve follows all other schedules.
--
-- pg_cron is called by its documented interface: cron.schedule(job_name, schedule, command), cron.unschedule(job_id)
-- and the table cron.job. A schema cron that does not belong to a superuser is not pg_cron's, and is left alone.

-- Return a pattern for a field of cron, given the pattern for one of its numbers or names.
CREATE OR REPLACE FUNCTION idivm.cron_field(item text) RETURNS text
    LANGUAGE sql IMMUTABLE
    RETURN replace('(\*(/0*[1-9]\d*)?|N(-N(/0*[1-9]\d*)?)?)(,(\*(/0*[1-9]\d*)?|N(-N(/0*[1-9]\d*)?)?))*', 'N', item);

CREATE OR REPLACE FUNCTION idivm.schedule_pattern() RETURNS text
    LANGUAGE sql IMMUTABLE
    RETURN '^(off|[1-9]\d{0,8} ?(ms|s|seconds?|min|minutes?|h|hours?|days?)|@(hourly|daily|midnight|weekly|monthly|yearly|annually)|'
        || idivm.cron_field('[0-5]?\d') || ' +' || idivm.cron_field('([01]?\d|2[0-3])') || ' +'
        || idivm.cron_field('(0?[1-9]|[12]\d|3[01]|\$)') || ' +'
        || idivm.cron_field('(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)') || ' +'
        || idivm.cron_field('([0-7]|sun|mon|tue|wed|thu|fri|sat)') || ')$';
COMMENT ON FUNCTION idivm.schedule_pattern() IS 'a pattern for the values of the option schedule';

CREATE OR REPLACE FUNCTION idivm.schedule_of(options jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE
    RETURN nullif(options ->> 'schedule', 'off');

-- Return the seconds of an interval of a schedule, or NULL for cron's fields.
CREATE OR REPLACE FUNCTION idivm.schedule_seconds(schedule text) RETURNS numeric
    LANGUAGE sql IMMUTABLE
    RETURN substring(schedule, '^\d+')::numeric * CASE substring(schedule, '^\d+ ?(ms|s|min|h|d)[a-z]*$')
        WHEN 'ms' THEN 0.001 WHEN 's' THEN 1 WHEN 'min' THEN 60 WHEN 'h' THEN 3600 WHEN 'd' THEN 86400 END;

-- Return when pg_cron is to start the job of a schedule, or NULL for intervals that it does not have. It counts seconds
-- up to 59; longer intervals are whole minutes. For those that do not divide an hour or a day, the job starts each
-- minute or hour, and idivm.view_of_schedule says whether it has anything to do.
CREATE OR REPLACE FUNCTION idivm.cron_times(schedule text) RETURNS text
    LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT CASE
        WHEN schedule LIKE '@%' THEN CASE schedule
            WHEN '@hourly' THEN '0 * * * *' WHEN '@weekly' THEN '0 0 * * 0' WHEN '@monthly' THEN '0 0 1 * *'
            WHEN '@yearly' THEN '0 0 1 1 *' WHEN '@annually' THEN '0 0 1 1 *' ELSE '0 0 * * *' END
        WHEN s.seconds IS NULL THEN schedule
        WHEN s.seconds < 60 AND s.seconds = floor(s.seconds) THEN trim_scale(s.seconds) || ' seconds'
        WHEN s.seconds % 60 <> 0 THEN NULL
        WHEN s.seconds = 60 THEN '* * * * *'
        WHEN s.seconds < 3600 AND 3600 % s.seconds = 0 THEN format('*/%s * * * *', trim_scale(s.seconds / 60))
        WHEN s.seconds = 3600 THEN '0 * * * *'
        WHEN s.seconds = 86400 THEN '0 0 * * *'
        WHEN s.seconds < 86400 AND 86400 % s.seconds = 0 AND s.seconds % 3600 = 0 THEN format('0 */%s * * *', trim_scale(s.seconds / 3600))
        WHEN s.seconds % 3600 = 0 THEN '0 * * * *'
        ELSE '* * * * *' END
    FROM (SELECT idivm.schedule_seconds(schedule)) AS s (seconds);
END;
COMMENT ON FUNCTION idivm.cron_times(text) IS 'when pg_cron starts the job of a schedule, or NULL if it cannot';

-- Refuse options about the times of refreshes that contradict the mode: writers of such a view keep it up to date.
CREATE OR REPLACE FUNCTION idivm.check_timing(options jsonb) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    mode text := options ->> 'maintain';
    given text := CASE WHEN idivm.schedule_of(options) IS NOT NULL AND mode IN ('eager', 'on_commit') THEN 'schedule'
                       WHEN coalesce(options ->> 'refresh_group', '') <> '' AND mode <> 'deferred' THEN 'refresh_group'
                       WHEN coalesce(options ->> 'gate', '') <> '' AND mode <> 'deferred' THEN 'gate' END;
BEGIN
    IF given IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('%s is not available with maintain = %s, whose content does not wait for refreshes', given, mode),
            HINT = 'Leave it out, or choose maintain = deferred.';
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.check_timing(jsonb) IS 'refuses a schedule, group or gate of a view that writers or reads keep up to date';

-- Return whether the schema cron is that of pg_cron. Only superusers create pg_cron; whoever else owns such a schema
-- would have idivm run code of theirs.
CREATE OR REPLACE FUNCTION idivm.has_cron() RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(*) = 4 AND bool_and(r.rolsuper)
    FROM (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'cron'
          UNION ALL SELECT c.relowner FROM pg_class c WHERE c.relnamespace = to_regnamespace('cron') AND c.relname = 'job'
          UNION ALL (SELECT p.proowner FROM pg_proc p WHERE p.pronamespace = to_regnamespace('cron') AND p.proname = 'schedule' AND p.pronargs = 3 LIMIT 1)
          UNION ALL (SELECT p.proowner FROM pg_proc p WHERE p.pronamespace = to_regnamespace('cron') AND p.proname = 'unschedule'
                     AND p.proargtypes::text = 'bigint'::regtype::oid::text LIMIT 1)) AS owners (owner)
    JOIN pg_roles r ON r.oid = owners.owner
$$;
COMMENT ON FUNCTION idivm.has_cron() IS 'whether pg_cron is installed in this database';

-- Return why this role has no job of pg_cron for a schedule, as the end of a sentence, or NULL if it may have one.
CREATE OR REPLACE FUNCTION idivm.why_no_job(schedule text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN NOT idivm.has_cron() THEN 'pg_cron is not installed in this database'
        WHEN (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN 'idivm gives superusers no jobs of pg_cron'
        WHEN NOT has_schema_privilege('cron', 'USAGE') THEN format('the role %s may not use the schema cron', current_user)
        WHEN NOT has_function_privilege('idivm.refresh_views(integer[])', 'EXECUTE') THEN format('the role %s may not refresh views', current_user)
        WHEN idivm.cron_times(schedule) IS NULL THEN format('pg_cron has no interval of %s', schedule) END
$$;
COMMENT ON FUNCTION idivm.why_no_job(text) IS 'why pg_cron does not follow a schedule of this role, or NULL';

CREATE OR REPLACE FUNCTION idivm.cron_command(id integer) RETURNS text
    LANGUAGE sql IMMUTABLE
    RETURN format('CALL idivm.refresh_on_schedule(%s)', id);

-- Return whether pg_cron has a job. Only its own role and superusers see it.
CREATE OR REPLACE FUNCTION idivm.has_job(j idivm.cron_jobs) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    present boolean;
BEGIN
    IF j.job IS NULL OR NOT idivm.has_cron() OR NOT has_schema_privilege('cron', 'USAGE') THEN
        RETURN false;
    END IF;
    EXECUTE 'SELECT EXISTS (SELECT FROM cron.job AS c WHERE c.jobid = $1 AND c.command = $2 AND c.active)'
    INTO present USING j.job, idivm.cron_command(j.id);
    RETURN present;
END
$$;
COMMENT ON FUNCTION idivm.has_job(idivm.cron_jobs) IS 'whether pg_cron has this job, as far as this role sees';

-- Let each role write the jobs of its own views.
CREATE OR REPLACE FUNCTION idivm.check_cron_job() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT idivm.may_change_catalog() THEN
        IF tg_op <> 'INSERT' AND NOT coalesce((SELECT pg_has_role(r.oid, 'USAGE') FROM pg_roles r WHERE r.rolname = old.role), false) THEN
            RAISE insufficient_privilege USING MESSAGE = format('the schedule of %s belongs to the role %s', old.relation, old.role);
        ELSIF tg_op <> 'DELETE' AND (idivm.owns(new.relation) AND new.role = current_user) IS NOT TRUE THEN
            RAISE insufficient_privilege USING MESSAGE = format('must be owner of view %s', new.relation);
        END IF;
    END IF;
    RETURN CASE WHEN tg_op = 'DELETE' THEN old ELSE new END;
END
$$;

CREATE OR REPLACE TRIGGER check_owner BEFORE INSERT OR UPDATE OR DELETE ON idivm.cron_jobs
    FOR EACH ROW EXECUTE FUNCTION idivm.check_cron_job();

CREATE OR REPLACE VIEW idivm.schedules AS
SELECT s.relation AS view, idivm.schedule_of(s.options) AS schedule,
       CASE WHEN here.job THEN 'pg_cron' ELSE 'idivm serve' END AS runner,
       CASE WHEN here.job THEN j.job END AS job, s.refreshed_at
FROM (
    SELECT v.relation, v.options, w.refreshed_at FROM idivm.views v LEFT JOIN idivm.watermarks w ON w.view = v.id
    WHERE v.options ? 'schedule' AND NOT EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.relation = v.relation)
  UNION ALL
    SELECT u.relation, u.options, NULL FROM idivm.unplanned_views u WHERE u.options ? 'schedule'
) AS s
JOIN pg_class c ON c.oid = s.relation
LEFT JOIN idivm.cron_jobs j ON j.relation = s.relation
CROSS JOIN LATERAL (SELECT idivm.has_job(j) AS job OFFSET 0) AS here
WHERE idivm.schedule_of(s.options) IS NOT NULL;
COMMENT ON VIEW idivm.schedules IS 'the views with a schedule, and whether pg_cron or idivm serve follows it';

-- Bring the jobs of this role in line with the schedules: end those of views that are gone or have no schedule, and
-- begin or change those of its own views.
CREATE OR REPLACE FUNCTION idivm.sync_schedules() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    pair record;
    new_job bigint;
    stands boolean;
    name text := 'a view';
BEGIN
    IF NOT EXISTS (SELECT FROM idivm.cron_jobs) AND NOT idivm.has_cron() THEN
        RETURN;
    END IF;
    FOR pair IN
        SELECT s.view, s.schedule, j AS entry, j.id, j.job, j.times
        FROM idivm.schedules s FULL JOIN idivm.cron_jobs j ON j.relation = s.view
        WHERE (j.id IS NULL AND idivm.owns(s.view) OR j.role = current_user)
    LOOP
        name := coalesce(pair.view::text, 'a dropped view');
        stands := pair.id IS NOT NULL AND idivm.has_job(pair.entry);
        CONTINUE WHEN stands AND pair.times = idivm.cron_times(pair.schedule);
        IF stands THEN
            EXECUTE 'SELECT cron.unschedule($1)' USING pair.job;
        END IF;
        DELETE FROM idivm.cron_jobs j WHERE j.id = pair.id;
        CONTINUE WHEN pair.view IS NULL OR idivm.why_no_job(pair.schedule) IS NOT NULL;
        INSERT INTO idivm.cron_jobs (relation, job, times) VALUES (pair.view, 0, idivm.cron_times(pair.schedule))
        RETURNING id INTO pair.id;
        EXECUTE 'SELECT cron.schedule($1, $2, $3)' INTO new_job
        USING 'idivm ' || pair.id, idivm.cron_times(pair.schedule), idivm.cron_command(pair.id);
        UPDATE idivm.cron_jobs j SET job = new_job WHERE j.id = pair.id;
    END LOOP;
EXCEPTION WHEN OTHERS THEN
    IF idivm.ends_refresh(sqlstate) THEN
        RAISE;
    END IF;
    -- A schedule without a job is followed by idivm serve.
    RAISE WARNING 'pg_cron did not take the schedule of %: %', name, sqlerrm;
END
$$;
COMMENT ON FUNCTION idivm.sync_schedules() IS 'brings the jobs of pg_cron in line with the schedules of this role''s views';

-- Have a schedule followed, and return by whom.
CREATE OR REPLACE FUNCTION idivm.follow_schedule(view regclass) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry record;
BEGIN
    PERFORM idivm.sync_schedules();
    SELECT s.schedule, s.runner INTO entry FROM idivm.schedules s WHERE s.view = follow_schedule.view;
    IF entry.runner = 'idivm serve' THEN
        RAISE NOTICE 'idivm serve follows the schedule of %, because %', view,
            coalesce(idivm.why_no_job(entry.schedule), 'pg_cron did not take it');
    END IF;
    RETURN entry.runner;
END
$$;
COMMENT ON FUNCTION idivm.follow_schedule(regclass) IS 'has a schedule followed, by pg_cron if this role may use it';

CREATE OR REPLACE FUNCTION idivm.schedule(view regclass, every text) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM idivm.alter_view(view, options => jsonb_build_object('schedule', every));
    RETURN (SELECT s.runner FROM idivm.schedules s WHERE s.view = schedule.view);
END
$$;
COMMENT ON FUNCTION idivm.schedule(regclass, text) IS
    'refreshes a view at an interval, as in 10 s, or at times that cron''s five fields name; returns who does it: pg_cron or idivm serve';

CREATE OR REPLACE FUNCTION idivm.unschedule(view regclass) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    scheduled boolean := idivm.schedule_of(idivm.options_of(view, idivm.own_view(view))) IS NOT NULL;
BEGIN
    IF scheduled THEN
        PERFORM idivm.alter_view(view, options => '{"schedule": "off"}');
    END IF;
    RETURN scheduled;
END
$$;
COMMENT ON FUNCTION idivm.unschedule(regclass) IS 'ends the schedule of a view; returns whether there was one';

-- Return the view that a job is to refresh now. A job whose view is gone ends itself.
CREATE OR REPLACE FUNCTION idivm.view_of_schedule(id integer) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry record;
    every numeric;
BEGIN
    SELECT s.view, s.schedule, j.times INTO entry
    FROM idivm.cron_jobs j JOIN idivm.schedules s ON s.view = j.relation WHERE j.id = view_of_schedule.id;
    IF NOT FOUND THEN
        PERFORM idivm.sync_schedules();
        RETURN NULL;
    END IF;
    every := idivm.schedule_seconds(entry.schedule);
    IF every > 60 AND entry.times IN ('* * * * *', '0 * * * *') AND every <> 3600 THEN
        -- The job starts more often than the view is due.
        IF date_bin(make_interval(secs => every::double precision), now(), timestamptz 'epoch')
           < date_trunc(CASE entry.times WHEN '* * * * *' THEN 'minute' ELSE 'hour' END, now(), 'UTC') THEN
            RETURN NULL;
        END IF;
    END IF;
    RETURN (SELECT v.relation::text FROM idivm.views v WHERE v.relation = entry.view AND NOT idivm.is_paused(v));
END
$$;

CREATE OR REPLACE PROCEDURE idivm.refresh_on_schedule(id integer)
    LANGUAGE plpgsql
AS $$
DECLARE
    name pg_catalog.text := idivm.view_of_schedule(id);
BEGIN
    IF name IS NOT NULL THEN
        CALL idivm.refresh_all(name);
    END IF;
END
$$;
COMMENT ON PROCEDURE idivm.refresh_on_schedule(integer) IS 'the command of a job of pg_cron: refreshes the view of a schedule';
