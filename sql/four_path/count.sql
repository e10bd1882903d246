SELECT count(*) AS n FROM r JOIN s ON s.a = r.a JOIN t ON t.b = s.b JOIN u ON u.c = t.c
