WITH chosen AS (
    SELECT pid FROM parts WHERE pid > 0 ORDER BY hashint4extended(pid, %(round)s) LIMIT %(d)s
), updated AS (
    UPDATE parts SET price = price + 1 FROM chosen WHERE parts.pid = chosen.pid
    RETURNING parts.pid, price - 1 AS old_price, price
)
INSERT INTO changed SELECT pid, old_price, price FROM updated
