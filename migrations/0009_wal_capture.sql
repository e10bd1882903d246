-- Tables whose changes are read from the WAL, through a logical replication slot, and not logged by triggers.
ALTER TABLE idivm.sources ADD COLUMN wal_since pg_lsn;
COMMENT ON COLUMN idivm.sources.wal_since IS
    'changes committed from this position on are read from the WAL; NULL if triggers log them';

ALTER TABLE idivm.source_members ADD COLUMN identity text, ADD COLUMN wal_columns text[];
COMMENT ON COLUMN idivm.source_members.identity IS
    'the replica identity that the table had before its changes were read from the WAL, as ALTER TABLE takes it';
COMMENT ON COLUMN idivm.source_members.wal_columns IS
    'what idivm.wal_columns returned when the WAL was last read';

CREATE TABLE idivm.wal_slots (
    slot        text PRIMARY KEY,
    position    pg_lsn,
    read_at     timestamptz
);
COMMENT ON TABLE idivm.wal_slots IS 'the slot through which changes are read from the WAL; at most one row';
COMMENT ON COLUMN idivm.wal_slots.position IS
    'the changes of all transactions whose commit record begins before this position are in the logs';
