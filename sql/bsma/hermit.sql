-- A user whom nothing else in the network mentions: an update of it lets a session make its plans
-- and brings no data into memory.
INSERT INTO users VALUES (0, 'user 0', 'nowhere', 0, 0)
