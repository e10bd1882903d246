SELECT r.b, a, c, price, fee FROM r JOIN s USING (b) ORDER BY price + fee DESC LIMIT 10
