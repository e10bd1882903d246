SELECT sum(postcode * house.n * shop.n * restaurant.n * institution.n * demographics.n * transport.n) AS total
FROM (SELECT postcode, count(*) AS n FROM house GROUP BY postcode) AS house
JOIN (SELECT postcode, count(*) AS n FROM shop GROUP BY postcode) AS shop USING (postcode)
JOIN (SELECT postcode, count(*) AS n FROM restaurant GROUP BY postcode) AS restaurant USING (postcode)
JOIN (SELECT postcode, count(*) AS n FROM institution GROUP BY postcode) AS institution USING (postcode)
JOIN (SELECT postcode, count(*) AS n FROM demographics GROUP BY postcode) AS demographics USING (postcode)
JOIN (SELECT postcode, count(*) AS n FROM transport GROUP BY postcode) AS transport USING (postcode)
