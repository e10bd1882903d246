SELECT idivm.covar(units, cents, area, weight, visitors) AS payload FROM sales JOIN shops USING (shop) JOIN items USING (item) JOIN days USING (day)
