-- What must be there before the first migration: the schema, and the record of what was applied.

CREATE SCHEMA idivm;

CREATE TABLE idivm.migrations (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE idivm.migrations IS 'the migrations that made this catalog, with the checksums of their files';
