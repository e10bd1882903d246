-- Eight small transactions: four new orders, two payments, a delivery and a return, of others in each round.

CREATE OR REPLACE PROCEDURE enter(w integer, d integer, c integer, lines integer) LANGUAGE plpgsql AS $$
DECLARE
    o integer;
BEGIN
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d RETURNING d_next_o_id - 1 INTO o;
    INSERT INTO orders VALUES (w, d, o, c, timestamp '2024-02-01' + o * interval '1 hour', NULL, lines);
    INSERT INTO new_order VALUES (w, d, o);
    INSERT INTO order_line SELECT w, d, o, n, 1 + (o * 31 + n * 77) % 1000, NULL, 5, n * 2.5 FROM generate_series(1, lines) AS n;
    UPDATE stock SET s_quantity = s_quantity - 5, s_ytd = s_ytd + 5, s_order_cnt = s_order_cnt + 1
    WHERE s_w_id = w AND s_i_id IN (SELECT 1 + (o * 31 + n * 77) % 1000 FROM generate_series(1, lines) AS n);
END $$;
CREATE OR REPLACE PROCEDURE pay(w integer, d integer, c integer, paid numeric) LANGUAGE sql AS $$
    UPDATE warehouse SET w_ytd = w_ytd + paid WHERE w_id = w;
    UPDATE district SET d_ytd = d_ytd + paid WHERE d_w_id = w AND d_id = d;
    UPDATE customer SET c_balance = c_balance - paid, c_payment_cnt = c_payment_cnt + 1 WHERE (c_w_id, c_d_id, c_id) = (w, d, c);
    INSERT INTO history SELECT max(h_id) + 1, c, d, w, timestamp '2024-03-01', paid FROM history;
$$;
CREATE OR REPLACE PROCEDURE deliver(w integer, carrier integer) LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT no_d_id, min(no_o_id) AS o FROM new_order WHERE no_w_id = w GROUP BY no_d_id LOOP
        DELETE FROM new_order WHERE (no_w_id, no_d_id, no_o_id) = (w, one.no_d_id, one.o);
        UPDATE orders SET o_carrier_id = carrier WHERE (o_w_id, o_d_id, o_id) = (w, one.no_d_id, one.o);
        UPDATE order_line SET ol_delivery_d = timestamp '2024-03-02' WHERE (ol_w_id, ol_d_id, ol_o_id) = (w, one.no_d_id, one.o);
        UPDATE customer SET c_balance = c_balance + 10, c_delivery_cnt = c_delivery_cnt + 1
        FROM orders WHERE (o_w_id, o_d_id, o_id) = (w, one.no_d_id, one.o) AND (c_w_id, c_d_id, c_id) = (w, one.no_d_id, o_c_id);
    END LOOP;
END $$;
CREATE OR REPLACE PROCEDURE give_back(w integer, d integer, nth integer) LANGUAGE sql AS $$
    DELETE FROM order_line WHERE (ol_w_id, ol_d_id, ol_o_id) = (w, d, nth) AND ol_number = (
        SELECT max(ol_number) FROM order_line WHERE (ol_w_id, ol_d_id, ol_o_id) = (w, d, nth));
$$;
CALL enter(1 + current_setting('bench.round')::integer % 4, 1 + current_setting('bench.round')::integer % 10, 5, 7);
CALL enter(1 + current_setting('bench.round')::integer % 4, 2, 9, 12);
CALL enter(2, 1 + current_setting('bench.round')::integer % 10, 11, 5);
CALL enter(3, 3, 17, 10);
CALL pay(1, 1 + current_setting('bench.round')::integer % 10, 21, 12.5);
CALL pay(4, 2, 1 + current_setting('bench.round')::integer % 200, 70);
CALL deliver(1 + current_setting('bench.round')::integer % 4, 3);
CALL give_back(2, 5, 1 + current_setting('bench.round')::integer % 200);
