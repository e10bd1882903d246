ALTER TABLE recorded ADD PRIMARY KEY (n);
CREATE TABLE flights AS SELECT * FROM recorded WHERE n < current_setting('bench.rows')::integer;
ALTER TABLE flights ADD PRIMARY KEY (n), ALTER month SET NOT NULL, ALTER day SET NOT NULL, ALTER carrier SET NOT NULL, ALTER origin SET NOT NULL, ALTER dest SET NOT NULL,
    ALTER time_hour SET NOT NULL;
CREATE INDEX ON flights (tailnum);
CREATE INDEX ON flights (origin, time_hour);
CREATE INDEX ON flights (dest);
CREATE INDEX ON flights (carrier)
