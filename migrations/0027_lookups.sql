-- A program that looks rows up whatever the statistics say does not go through rows that it holds either.

ALTER FUNCTION idivm.query_work(regclass) SET enable_material = on;
