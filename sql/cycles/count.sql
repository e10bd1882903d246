SELECT count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a
