ALTER TYPE idivm.watermark ADD ATTRIBUTE upto pg_snapshot;
COMMENT ON TYPE idivm.watermark IS
    'what a view has consumed: all that snapshot sees, and of transaction own_xid the statements up to own_marks[source];'
    ' a refresh under READ COMMITTED that locks no table reads only changes that upto sees';

ALTER TABLE idivm.watermarks ADD COLUMN quiet_until timestamptz;
COMMENT ON COLUMN idivm.watermarks.quiet_until IS
    'until when writers leave the pending changes of a shared view to a refresh that is about to take its snapshot';

COMMENT ON COLUMN idivm.views.read_from IS
    'the view that merges the content with pending changes, if reads do that (on_read, and eager views that writers'
    ' share); NULL if readers see state';
COMMENT ON COLUMN idivm.commits.views IS 'views to refresh, and shared views, as negative numbers, to fold';
