CREATE TABLE shops (shop int PRIMARY KEY, city int NOT NULL, area int NOT NULL);
INSERT INTO shops SELECT n, n % 100, 50 + n % 451 FROM generate_series(1, current_setting('bench.shops')::int) AS n;
CREATE TABLE items (item int PRIMARY KEY, kind int NOT NULL, weight int NOT NULL);
INSERT INTO items SELECT n, n % 50, 1 + n % 977 FROM generate_series(1, current_setting('bench.items')::int) AS n;
CREATE TABLE days (day int PRIMARY KEY, month int NOT NULL, visitors int NOT NULL);
INSERT INTO days SELECT n, n / 30, 100 + n % 800 FROM generate_series(1, current_setting('bench.days')::int) AS n;
