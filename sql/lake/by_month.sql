SELECT month, count(*) AS n, sum(units * cents) AS revenue FROM sales JOIN days USING (day) GROUP BY month
