SELECT sum(x * y * z) AS total, count(*) AS n FROM r JOIN s USING (a) JOIN t USING (a)
