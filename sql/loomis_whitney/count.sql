SELECT count(*) AS n
FROM r
JOIN s ON s.b = r.b AND s.c = r.c
JOIN t ON t.c = s.c AND t.d = s.d AND t.a = r.a
JOIN u ON u.d = s.d AND u.a = r.a AND u.b = r.b
