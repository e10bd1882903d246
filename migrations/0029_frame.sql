-- Most views read no view: that is found out without a look at each of the others.

-- As before, but what reads a view by its name is looked for only where a view can do that.
CREATE OR REPLACE FUNCTION idivm.views_below(view_id integer) RETURNS SETOF integer
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT lower_view.id
    FROM idivm.view_sources vs
    JOIN idivm.sources s ON s.id = vs.source
    JOIN idivm.views lower_view ON lower_view.state = s.relation
    WHERE vs.view = view_id
  UNION ALL
    SELECT lower_view.id
    FROM (SELECT v.id, v.definition FROM idivm.views v WHERE v.id = view_id AND v.moving OFFSET 0) AS v
    CROSS JOIN LATERAL (
        SELECT below.id
        FROM pg_rewrite r
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
        JOIN idivm.views below ON below.relation = d.refobjid
        JOIN pg_class c ON c.oid = below.state AND c.relkind = 'v'
        WHERE r.ev_class = v.definition
           OR r.ev_class IN (SELECT i.relation FROM idivm.inlined_views i WHERE i.view = v.id)
        OFFSET 0
    ) AS lower_view;
END;
