ALTER TABLE idivm.views ADD COLUMN common_join boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN idivm.views.common_join IS
    'whether the view stores a join for views with common_join = on, and is dropped when none of them is left';
