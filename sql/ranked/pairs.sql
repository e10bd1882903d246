SELECT r.b, a, c, price, fee FROM r JOIN s USING (b)
