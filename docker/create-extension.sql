-- Run once, in the database that POSTGRES_DB names, when the data is initialised.
CREATE EXTENSION idivm;
