-- Users whom nothing else in the network mentions: an update of all of them lets a session make the
-- plans of as many changes and brings no data into memory.
INSERT INTO users SELECT -n, 'user ' || -n, 'nowhere', 0, 0 FROM generate_series(0, 99) AS n
