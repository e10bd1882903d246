SELECT sum(at_locn.units * at_zip.n) AS total
FROM (SELECT locn, sum(at_date.units * at_day.n) AS units
      FROM (SELECT locn, dateid, sum(inventory.units * at_item.n) AS units
            FROM inventory JOIN (SELECT ksn, count(*) AS n FROM item GROUP BY ksn) AS at_item USING (ksn)
            GROUP BY locn, dateid) AS at_date
      JOIN (SELECT locn, dateid, count(*) AS n FROM weather GROUP BY locn, dateid) AS at_day USING (locn, dateid)
      GROUP BY locn) AS at_locn
JOIN (SELECT locn, sum(each.n) AS n
      FROM location JOIN (SELECT zip, count(*) AS n FROM census GROUP BY zip) AS each USING (zip)
      GROUP BY locn) AS at_zip USING (locn)
