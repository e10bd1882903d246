SELECT r.a, s.c, count(*) AS n
FROM r JOIN s ON s.b = r.b
GROUP BY r.a, s.c
