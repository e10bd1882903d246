-- Another location with its weather and a thousand rows of inventory, another item, another zip code.
INSERT INTO census
SELECT made.* FROM census AS one, jsonb_populate_record(one, jsonb_build_object('zip', {number})) AS made WHERE one.zip = 0;
INSERT INTO item
SELECT made.* FROM item AS one, jsonb_populate_record(one, jsonb_build_object('ksn', {number})) AS made WHERE one.ksn = 0;
INSERT INTO location
SELECT made.* FROM location AS one, jsonb_populate_record(one, jsonb_build_object('locn', {number})) AS made WHERE one.locn = 0;
INSERT INTO weather
SELECT made.* FROM weather AS one, jsonb_populate_record(one, jsonb_build_object('locn', {number})) AS made WHERE one.locn = 0;
INSERT INTO inventory SELECT {number}, n % 53, n % 499, n % 200 FROM generate_series(1, 1000) AS n
