SELECT a1.i, a3.l, sum(a1.p * a2.p * a3.p) AS p FROM a1 JOIN a2 USING (j) JOIN a3 USING (k) GROUP BY a1.i, a3.l
