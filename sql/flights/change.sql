INSERT INTO flights
SELECT g, r.year, r.month, r.day, r.dep_time, r.sched_dep_time, r.dep_delay, r.arr_time, r.sched_arr_time, r.arr_delay,
       r.carrier, r.flight, r.tailnum, r.origin, r.dest, r.air_time, r.distance, r.hour, r.minute, r.time_hour
FROM generate_series({first}, {last}) AS g JOIN recorded AS r ON r.n = g % (SELECT 1 + max(n) FROM recorded)
