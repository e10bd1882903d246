-- PostgreSQL 15 refuses to add a column with a default to a table whose row type a function uses.
ALTER TABLE idivm.views ADD COLUMN common_join boolean;
ALTER TABLE idivm.views ALTER COLUMN common_join SET DEFAULT false;
COMMENT ON COLUMN idivm.views.common_join IS
    'whether the view stores a join for views with common_join = on, and is dropped when none of them is left';
