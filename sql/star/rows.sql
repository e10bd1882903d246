SELECT a, r.id AS r, s.id AS s, t.id AS t, x, y, z FROM r JOIN s USING (a) JOIN t USING (a)
