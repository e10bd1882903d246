SELECT did, pid, price
FROM parts NATURAL JOIN devices_parts NATURAL JOIN devices
WHERE category = 'phone'
