-- Views of an order entry after eight small transactions.
-- quick: orders = 240
-- whole: orders = 240
-- view: open orders
SELECT * FROM new_order
-- view: orders with customers
SELECT o_w_id, o_d_id, o_id, c_last, c_credit FROM orders JOIN customer ON (c_w_id, c_d_id, c_id) = (o_w_id, o_d_id, o_c_id)
-- view: order lines with items
SELECT ol_w_id, ol_d_id, ol_o_id, ol_number, i_name, ol_amount FROM order_line JOIN item ON i_id = ol_i_id
-- view: whole orders
SELECT o_w_id, o_d_id, o_id, ol_number, c_last, i_name, ol_amount
FROM orders JOIN order_line ON (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
JOIN customer ON (c_w_id, c_d_id, c_id) = (o_w_id, o_d_id, o_c_id) JOIN item ON i_id = ol_i_id
-- view: revenue of districts
SELECT ol_w_id, ol_d_id, sum(ol_amount) AS revenue, count(*) AS lines FROM order_line GROUP BY ol_w_id, ol_d_id
-- view: revenue of warehouses by name
SELECT w_name, sum(ol_amount) AS revenue FROM order_line JOIN warehouse ON w_id = ol_w_id GROUP BY w_name
-- view: revenue of items
SELECT i_id, i_name, sum(ol_amount) AS revenue, sum(ol_quantity) AS pieces FROM order_line JOIN item ON i_id = ol_i_id GROUP BY i_id, i_name
-- view: revenue of kinds
SELECT i_data, sum(ol_amount) AS revenue FROM order_line JOIN item ON i_id = ol_i_id GROUP BY i_data
-- view: revenue of customers
SELECT c_w_id, c_d_id, c_id, sum(ol_amount) AS revenue
FROM customer JOIN orders ON (c_w_id, c_d_id, c_id) = (o_w_id, o_d_id, o_c_id)
JOIN order_line ON (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id) GROUP BY c_w_id, c_d_id, c_id
-- view: totals of orders
SELECT ol_w_id, ol_d_id, ol_o_id, sum(ol_amount) AS total, max(ol_amount) AS most FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id
-- view: large orders
SELECT ol_w_id, ol_d_id, ol_o_id, sum(ol_amount) AS total FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id HAVING sum(ol_amount) > 500
-- view: dearest line of each district
SELECT ol_w_id, ol_d_id, max(ol_amount) AS most, min(ol_amount) AS least FROM order_line GROUP BY ol_w_id, ol_d_id
-- view: items sold in each district
SELECT ol_w_id, ol_d_id, count(DISTINCT ol_i_id) AS items FROM order_line GROUP BY ol_w_id, ol_d_id
-- view: items sold in each warehouse
SELECT ol_w_id, count(DISTINCT ol_i_id) AS items FROM order_line GROUP BY ol_w_id
-- view: customers by credit
SELECT c_credit, count(*) AS customers, sum(c_balance) AS balance, avg(c_discount) AS discount FROM customer GROUP BY c_credit
-- view: poorest customers
SELECT c_w_id, c_d_id, c_id, c_balance FROM customer ORDER BY c_balance, c_w_id, c_d_id, c_id LIMIT 20
-- view: rank of customers in their district
SELECT c_w_id, c_d_id, c_id, rank() OVER (PARTITION BY c_w_id, c_d_id ORDER BY c_balance DESC) AS place FROM customer
-- view: rank of customers in their warehouse
SELECT c_w_id, c_d_id, c_id, rank() OVER (PARTITION BY c_w_id ORDER BY c_balance DESC) AS place FROM customer
-- view: running revenue of warehouses
SELECT ol_w_id, ol_d_id, ol_o_id, ol_number, sum(ol_amount) OVER (PARTITION BY ol_w_id ORDER BY ol_d_id, ol_o_id, ol_number) AS running FROM order_line
-- view: running revenue of districts
SELECT ol_w_id, ol_d_id, ol_o_id, ol_number, sum(ol_amount) OVER (PARTITION BY ol_w_id, ol_d_id ORDER BY ol_o_id, ol_number) AS running FROM order_line
-- view: rank of items in warehouses
SELECT ol_w_id, ol_i_id, revenue, rank() OVER (PARTITION BY ol_w_id ORDER BY revenue DESC) AS place
FROM (SELECT ol_w_id, ol_i_id, sum(ol_amount) AS revenue FROM order_line GROUP BY ol_w_id, ol_i_id) AS sold
-- view: last order of each customer
SELECT DISTINCT ON (o_w_id, o_d_id, o_c_id) o_w_id, o_d_id, o_c_id, o_id, o_entry_d FROM orders ORDER BY o_w_id, o_d_id, o_c_id, o_id DESC
-- view: days between orders of a customer
SELECT o_w_id, o_d_id, o_id, o_entry_d - lag(o_entry_d) OVER (PARTITION BY o_w_id, o_d_id, o_c_id ORDER BY o_id) AS since FROM orders
-- view: orders numbered in their district
SELECT o_w_id, o_d_id, o_id, row_number() OVER (PARTITION BY o_w_id, o_d_id ORDER BY o_entry_d, o_id) AS nth FROM orders
-- view: share of the district
SELECT ol_w_id, ol_d_id, ol_o_id, ol_number, ol_amount / sum(ol_amount) OVER (PARTITION BY ol_w_id, ol_d_id) AS share FROM order_line WHERE ol_amount > 0
-- view: orders without lines
SELECT o_w_id, o_d_id, o_id FROM orders
WHERE NOT EXISTS (SELECT FROM order_line WHERE (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id))
-- view: customers with open orders
SELECT c_w_id, c_d_id, c_id, c_last FROM customer
WHERE EXISTS (SELECT FROM orders WHERE (o_w_id, o_d_id, o_c_id) = (c_w_id, c_d_id, c_id) AND o_carrier_id IS NULL)
-- view: customers and their orders
SELECT c_w_id, c_d_id, c_id, count(o_id) AS orders
FROM customer LEFT JOIN orders ON (o_w_id, o_d_id, o_c_id) = (c_w_id, c_d_id, c_id) GROUP BY c_w_id, c_d_id, c_id
-- view: scarce stock
SELECT s_w_id, s_i_id, i_name, s_quantity FROM stock JOIN item ON i_id = s_i_id WHERE s_quantity < 20
-- view: scarce stock of districts
SELECT ol_w_id, ol_d_id, count(DISTINCT s_i_id) AS items
FROM order_line JOIN stock ON (s_w_id, s_i_id) = (ol_w_id, ol_i_id) WHERE s_quantity < 20 GROUP BY ol_w_id, ol_d_id
-- view: stock of warehouses
SELECT s_w_id, sum(s_quantity) AS pieces, min(s_quantity) AS least, sum(s_order_cnt) AS orders FROM stock GROUP BY s_w_id
-- view: payments of customers
SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid, max(h_date) AS latest FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id
-- view: payments of days
SELECT h_date::date AS day, count(*) AS payments, sum(h_amount) AS paid FROM history GROUP BY h_date::date
-- view: paid and owed
SELECT w_name, d_name, d_ytd, w_ytd, d_ytd / w_ytd AS share FROM district JOIN warehouse ON w_id = d_w_id
-- view: carriers
SELECT o_carrier_id, count(*) AS orders, sum(o_ol_cnt) AS lines FROM orders GROUP BY o_carrier_id
-- view: warehouses rolled up
SELECT o_w_id, o_d_id, count(*) AS orders FROM orders GROUP BY ROLLUP (o_w_id, o_d_id)
-- view: mean balance and above
SELECT c_w_id, c_d_id, c_id, c_balance FROM customer c
WHERE c_balance > (SELECT avg(b.c_balance) FROM customer b WHERE b.c_w_id = c.c_w_id AND b.c_d_id = c.c_d_id)
-- view: median amounts
SELECT ol_w_id, percentile_cont(0.5) WITHIN GROUP (ORDER BY ol_amount) AS median FROM order_line GROUP BY ol_w_id
-- view: items of orders as a list
SELECT ol_w_id, ol_d_id, ol_o_id, array_agg(ol_i_id ORDER BY ol_number) AS items FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id
-- view: last names
SELECT DISTINCT c_w_id, c_last FROM customer
-- view: sold or scarce
SELECT ol_i_id AS item FROM order_line WHERE ol_quantity > 4 UNION SELECT s_i_id FROM stock WHERE s_quantity < 15
-- view: never sold
SELECT i_id FROM item EXCEPT SELECT ol_i_id FROM order_line
-- view: pairs of items of an order
SELECT a.ol_i_id AS one, b.ol_i_id AS other, count(*) AS orders
FROM order_line a JOIN order_line b ON (b.ol_w_id, b.ol_d_id, b.ol_o_id) = (a.ol_w_id, a.ol_d_id, a.ol_o_id) AND b.ol_i_id > a.ol_i_id
WHERE a.ol_w_id = 1 GROUP BY a.ol_i_id, b.ol_i_id
-- view: customers of the same name
SELECT a.c_w_id, a.c_d_id, a.c_id, b.c_id AS other FROM customer a JOIN customer b
ON (b.c_w_id, b.c_d_id, b.c_last) = (a.c_w_id, a.c_d_id, a.c_last) AND b.c_id > a.c_id
-- view: latest payment
SELECT c.c_w_id, c.c_d_id, c.c_id, h.h_date, h.h_amount FROM customer c
LEFT JOIN LATERAL (
    SELECT h_date, h_amount FROM history WHERE (h_c_w_id, h_c_d_id, h_c_id) = (c.c_w_id, c.c_d_id, c.c_id) ORDER BY h_date DESC, h_id LIMIT 1
) AS h ON true
