SELECT kind, count(*) AS n, sum(units) AS units FROM sales JOIN items USING (item) GROUP BY kind
