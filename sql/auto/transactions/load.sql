-- The tables of an order entry like TPC-C's: four warehouses with ten districts each.
--
--   SET bench.orders = 240;       orders of a district, and its customers

CREATE TABLE warehouse AS SELECT w AS w_id, 'warehouse ' || w AS w_name, w / 100.0 AS w_tax, 300000.00::numeric AS w_ytd FROM generate_series(1, 4) AS w;
CREATE TABLE district AS
SELECT w AS d_w_id, d AS d_id, 'district ' || d AS d_name, d / 100.0 AS d_tax, 30000.00::numeric AS d_ytd,
       current_setting('bench.orders')::integer + 1 AS d_next_o_id
FROM generate_series(1, 4) AS w, generate_series(1, 10) AS d;
CREATE TABLE customer AS
SELECT d_w_id AS c_w_id, d_id AS c_d_id, c AS c_id, 'last ' || c % 50 AS c_last, CASE WHEN c % 10 = 0 THEN 'BC' ELSE 'GC' END AS c_credit,
       c % 50 / 100.0 AS c_discount, (c * 17 % 1000 - 500)::numeric(12, 2) AS c_balance, 1 AS c_payment_cnt, 0 AS c_delivery_cnt
FROM district, generate_series(1, current_setting('bench.orders')::integer) AS c;
CREATE TABLE history AS
SELECT row_number() OVER ()::integer AS h_id, c_id AS h_c_id, c_d_id AS h_c_d_id, c_w_id AS h_c_w_id, timestamp '2024-01-01' + c_id * interval '1 hour' AS h_date,
       10.00::numeric(6, 2) AS h_amount
FROM customer;
CREATE TABLE item AS SELECT i AS i_id, 'item ' || i AS i_name, (1 + i % 100)::numeric(5, 2) AS i_price, 'kind ' || i % 20 AS i_data FROM generate_series(1, 1000) AS i;
CREATE TABLE stock AS
SELECT w AS s_w_id, i_id AS s_i_id, 10 + i_id * w % 90 AS s_quantity, 0::numeric AS s_ytd, 0 AS s_order_cnt FROM generate_series(1, 4) AS w, item;
CREATE TABLE orders AS
SELECT d_w_id AS o_w_id, d_id AS o_d_id, o AS o_id, 1 + o * 7 % current_setting('bench.orders')::integer AS o_c_id,
       timestamp '2024-01-01' + o * interval '1 hour' AS o_entry_d, CASE WHEN o % 10 < 7 THEN 1 + o % 10 END AS o_carrier_id, 5 + o % 11 AS o_ol_cnt
FROM district, generate_series(1, current_setting('bench.orders')::integer) AS o;
CREATE TABLE new_order AS SELECT o_w_id AS no_w_id, o_d_id AS no_d_id, o_id AS no_o_id FROM orders WHERE o_carrier_id IS NULL;
CREATE TABLE order_line AS
SELECT o_w_id AS ol_w_id, o_d_id AS ol_d_id, o_id AS ol_o_id, n AS ol_number, 1 + (o_id * 31 + n * 101 + o_d_id) % 1000 AS ol_i_id,
       CASE WHEN o_carrier_id IS NOT NULL THEN o_entry_d + interval '1 day' END AS ol_delivery_d, 5 AS ol_quantity,
       (n * 13 + o_id) % 999 / 10.0 AS ol_amount
FROM orders, generate_series(1, o_ol_cnt) AS n;
ALTER TABLE warehouse ADD PRIMARY KEY (w_id);
ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id), ADD FOREIGN KEY (d_w_id) REFERENCES warehouse;
ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id), ADD FOREIGN KEY (c_w_id, c_d_id) REFERENCES district;
ALTER TABLE history ADD PRIMARY KEY (h_id), ADD FOREIGN KEY (h_c_w_id, h_c_d_id, h_c_id) REFERENCES customer;
ALTER TABLE item ADD PRIMARY KEY (i_id);
ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id), ADD FOREIGN KEY (s_i_id) REFERENCES item;
ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id), ADD FOREIGN KEY (o_w_id, o_d_id, o_c_id) REFERENCES customer;
ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id), ADD FOREIGN KEY (no_w_id, no_d_id, no_o_id) REFERENCES orders;
ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number),
    ADD FOREIGN KEY (ol_w_id, ol_d_id, ol_o_id) REFERENCES orders, ADD FOREIGN KEY (ol_i_id) REFERENCES item;
