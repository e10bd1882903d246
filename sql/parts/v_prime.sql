SELECT did, sum(price) AS cost
FROM parts NATURAL JOIN devices_parts NATURAL JOIN devices
WHERE category = 'phone'
GROUP BY did
