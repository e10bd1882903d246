ALTER TABLE idivm.costs ADD COLUMN known_work double precision, ADD COLUMN known_rows double precision,
                        ADD COLUMN known_size double precision;
COMMENT ON COLUMN idivm.costs.known_work IS 'the rows that PostgreSQL expects the query to process';
COMMENT ON COLUMN idivm.costs.known_rows IS 'the rows of the tables and of the states';
COMMENT ON COLUMN idivm.costs.known_size IS 'what idivm.source_size returned when these two numbers were asked for';
