SELECT city, kind, count(*) AS n, sum(units * cents) AS revenue FROM sales JOIN shops USING (shop) JOIN items USING (item) GROUP BY city, kind
