-- What someone writes who knows the two views, that only prices change, and which parts changed:
-- nothing is read that need not be written, and the plans are kept.

CREATE TABLE by_hand_v AS
SELECT did, pid, price
FROM parts NATURAL JOIN devices_parts NATURAL JOIN devices
WHERE category = 'phone';
ALTER TABLE by_hand_v ADD PRIMARY KEY (did, pid);
CREATE INDEX ON by_hand_v (pid);

CREATE TABLE by_hand_v_prime AS
SELECT did, sum(price) AS cost
FROM parts NATURAL JOIN devices_parts NATURAL JOIN devices
WHERE category = 'phone'
GROUP BY did;
ALTER TABLE by_hand_v_prime ADD PRIMARY KEY (did);

CREATE FUNCTION maintain_v() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE by_hand_v AS v SET price = c.price FROM changed AS c WHERE v.pid = c.pid;
END $$;

CREATE FUNCTION maintain_v_prime() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE by_hand_v_prime AS v SET cost = v.cost + growth.cost
    FROM (
        SELECT did, sum(c.price - c.old_price) AS cost
        FROM changed AS c JOIN devices_parts USING (pid) JOIN devices USING (did)
        WHERE category = 'phone'
        GROUP BY did
    ) AS growth
    WHERE v.did = growth.did;
END $$;

-- Together, the rows of one say which rows of the other change.
CREATE FUNCTION maintain_both() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH moved AS (
        UPDATE by_hand_v AS v SET price = c.price FROM changed AS c WHERE v.pid = c.pid
        RETURNING v.did, c.price - c.old_price AS cost
    ), growth AS (
        SELECT did, sum(cost) AS cost FROM moved GROUP BY did
    )
    UPDATE by_hand_v_prime AS v SET cost = v.cost + growth.cost FROM growth WHERE v.did = growth.did;
END $$;
