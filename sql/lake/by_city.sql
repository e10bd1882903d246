SELECT city, count(*) AS n, sum(units * cents) AS revenue FROM sales JOIN shops USING (shop) GROUP BY city
