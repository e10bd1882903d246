-- A social network in the proportions of the BSMA benchmark: for each user 100 friends and 20 tweets;
-- 10 % of the tweets are retweeted, 20 % mention users and 40 % belong to events, two times each.
--
--   SET bench.users = 10000;
--   SET bench.seed = 1;

-- A number from 0 to below `of` that looks random and is the same everywhere.
CREATE FUNCTION pick(n bigint, stream integer, below bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (hashint8extended(n, stream) & x'7fffffffffffffff'::bigint) % below;

CREATE TABLE users AS
SELECT n AS uid, 'user ' || n AS name, 'city ' || pick(n, seed + 1, 100) AS city,
       20 + pick(n, seed + 2, 1000)::integer AS tweetsnum, pick(n, seed + 3, 500)::integer AS favornum
FROM (SELECT current_setting('bench.seed')::integer * 100) AS s (seed),
     generate_series(1, current_setting('bench.users')::integer) AS n;

-- Friends lie at equal steps from each other around the circle of users, so that they differ.
CREATE TABLE friendlist AS
SELECT uid, (1 + (uid - 1 + 1 + (start + k * step) % (users - 1)) % users)::integer AS friend_id
FROM (SELECT count(*) AS users, least(100, count(*) / 20) AS friends FROM users) AS u,
     LATERAL (
         SELECT uid, pick(uid, seed + 4, users - 1) AS start, 1 + pick(uid, seed + 5, (users - 2) / friends) AS step
         FROM users, (SELECT current_setting('bench.seed')::integer * 100) AS s (seed)
     ) AS circle,
     generate_series(0, friends - 1) AS k;

CREATE TABLE microblog AS
SELECT n AS mid, (1 + pick(n, seed + 6, users))::integer AS uid,
       timestamp '2024-01-01' + interval '366 days' * (n - 1) / (20 * users) AS posted
FROM (SELECT current_setting('bench.seed')::integer * 100, current_setting('bench.users')::bigint) AS s (seed, users),
     generate_series(1, 20 * users) AS n;

-- Of ten tweets one is an original that two later ones, of their own kind, pass on.
CREATE TABLE retweets AS
SELECT 10 * ((n + lag) % tens) + place AS mid, 10 * n + 1 AS remid
FROM (SELECT 2 * current_setting('bench.users')::bigint) AS s (tens),
     (VALUES (1, 4), (17, 8)) AS kinds (lag, place),
     generate_series(0, tens - 1) AS n;

CREATE TABLE mentions AS
SELECT mid, (1 + (first + k * (1 + pick(mid, seed + 8, users - 1))) % users)::integer AS uid
FROM (SELECT current_setting('bench.seed')::integer * 100, current_setting('bench.users')::bigint) AS s (seed, users),
     LATERAL (SELECT 5 * n AS mid FROM generate_series(1, 4 * users) AS n) AS t,
     LATERAL (SELECT pick(mid, seed + 7, users) AS first) AS f,
     generate_series(0, 1) AS k;

CREATE TABLE rel_event_microblog AS
SELECT (1 + (first + k * (1 + pick(mid, seed + 10, events - 1))) % events)::integer AS eid, mid
FROM (SELECT current_setting('bench.seed')::integer * 100, current_setting('bench.users')::bigint) AS s (seed, users),
     LATERAL (SELECT greatest(2, users / 10) AS events) AS e,
     LATERAL (SELECT n AS mid FROM generate_series(1, 20 * users) AS n WHERE n % 5 IN (2, 3)) AS t,
     LATERAL (SELECT pick(mid, seed + 9, events) AS first) AS f,
     generate_series(0, 1) AS k;

ALTER TABLE users ADD PRIMARY KEY (uid), ALTER name SET NOT NULL, ALTER city SET NOT NULL,
    ALTER tweetsnum SET NOT NULL, ALTER favornum SET NOT NULL;
ALTER TABLE friendlist ADD PRIMARY KEY (uid, friend_id);
ALTER TABLE microblog ADD PRIMARY KEY (mid), ALTER uid SET NOT NULL, ALTER posted SET NOT NULL;
ALTER TABLE retweets ADD PRIMARY KEY (mid), ALTER remid SET NOT NULL;
ALTER TABLE mentions ADD PRIMARY KEY (mid, uid);
ALTER TABLE rel_event_microblog ADD PRIMARY KEY (eid, mid);

ALTER TABLE friendlist ADD FOREIGN KEY (uid) REFERENCES users, ADD FOREIGN KEY (friend_id) REFERENCES users;
ALTER TABLE microblog ADD FOREIGN KEY (uid) REFERENCES users;
ALTER TABLE retweets ADD FOREIGN KEY (mid) REFERENCES microblog, ADD FOREIGN KEY (remid) REFERENCES microblog;
ALTER TABLE mentions ADD FOREIGN KEY (mid) REFERENCES microblog, ADD FOREIGN KEY (uid) REFERENCES users;
ALTER TABLE rel_event_microblog ADD FOREIGN KEY (mid) REFERENCES microblog;

CREATE INDEX ON users (city);
CREATE INDEX ON friendlist (friend_id);
CREATE INDEX ON microblog (uid);
CREATE INDEX ON microblog (posted);
CREATE INDEX ON retweets (remid);
CREATE INDEX ON mentions (uid);
CREATE INDEX ON rel_event_microblog (mid);
