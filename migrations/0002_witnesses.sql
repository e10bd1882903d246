-- A prepared transaction survives a crash, and the rows that it wrote to unlogged tables do not.
ALTER TABLE idivm.witnesses ADD COLUMN since xid8;
COMMENT ON COLUMN idivm.witnesses.since IS
    'while a transaction from before the crash may still be prepared: the first number that none of them has';
