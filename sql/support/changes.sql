-- Changes of all tables; each part is one refresh.

UPDATE products SET price = price + 0.25 WHERE id < 4;
UPDATE customers SET city = 'city 1', about = '{"level": 7}' WHERE id IN (4, 5);
INSERT INTO customers VALUES (31, 'customer 31', NULL, 2, '{}', NULL);
INSERT INTO orders VALUES (61, 31, 'open', '2024-03-01 00:00+00');
INSERT INTO lines VALUES (61, 1, 3, 0.25), (61, 20, NULL, NULL);
-- next
UPDATE orders SET status = 'sent' WHERE id % 10 = 0;
UPDATE orders SET customer = 30 WHERE id = 7;
DELETE FROM lines WHERE product = 3;
UPDATE lines SET quantity = quantity + 1, weight = weight * 2 WHERE "order" < 5;
UPDATE customers SET referrer = 6 WHERE id = 9;
-- next
INSERT INTO events VALUES (1, 'kind 1'), (1, 'kind 1'), (NULL, NULL);
DELETE FROM events WHERE customer = 2;
UPDATE settings SET value = 'blue' WHERE name = 'colour';
UPDATE readings SET year = 2024 WHERE id = 2;
INSERT INTO readings VALUES (2023, 99, 5);
UPDATE documents SET title = title || '!';
INSERT INTO invoices VALUES (3, 'invoice', 1);
UPDATE products SET name = 'novelty', sold = NULL, kind = 'kind 9' WHERE id = 5;
-- next
DELETE FROM lines;
DELETE FROM orders WHERE id > 20;
REFRESH MATERIALIZED VIEW cities;
CREATE TABLE readings_2025 PARTITION OF readings FOR VALUES IN (2025);
INSERT INTO readings VALUES (2025, 100, 1);
-- next
INSERT INTO lines SELECT orders.id, products.id, 1, 1 FROM orders, products WHERE (orders.id + products.id) % 4 = 0;
UPDATE products SET price = NULL WHERE kind = 'kind 1';
ALTER TABLE readings DETACH PARTITION readings_2023;
UPDATE customers SET name = 'nobody' WHERE id = 1;
