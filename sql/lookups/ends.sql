SELECT r.a, b, c, t.d FROM r JOIN s USING (b) JOIN t USING (c)
