-- Tables whose rows stay in files.
ALTER TABLE idivm.streams
    ADD COLUMN reading jsonb,
    ADD COLUMN writer xid8;
COMMENT ON COLUMN idivm.streams.reading IS
    'for a table whose rows stay in files: the paths, the format and its options, and the column of operations';
COMMENT ON COLUMN idivm.streams.writer IS 'for such a table: the transaction that may write to it';
