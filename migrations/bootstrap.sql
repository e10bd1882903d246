-- What must exist before the first migration: the schema, and the record of what was applied.

CREATE SCHEMA idivm;

CREATE TABLE idivm.migrations (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE idivm.migrations IS 'the migrations that made the tables and types, with the checksums of their files';

CREATE TABLE idivm.declarations (
    checksum    text NOT NULL,
    routines    text[] NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
-- A publication of all tables would else forbid to change its row.
ALTER TABLE idivm.declarations REPLICA IDENTITY FULL;
COMMENT ON TABLE idivm.declarations IS 'one row: the checksum of the files that declare functions, and what they declared';
