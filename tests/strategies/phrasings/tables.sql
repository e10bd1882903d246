-- The tables of all phrasings.
CREATE TABLE r (id int PRIMARY KEY, a int, b int, x int);
CREATE TABLE s (id int PRIMARY KEY, b int, c int, y numeric(8, 2));
CREATE TABLE t (id int PRIMARY KEY, c int, a int, z int, label varchar(8));
CREATE TABLE q (b int, lab text, v int);
CREATE TABLE m (src int, dst int);
CREATE TABLE d (k int PRIMARY KEY, name text, city int);
CREATE TABLE i (k int PRIMARY KEY, price numeric(8, 2) NOT NULL);
CREATE TABLE f (id int PRIMARY KEY, shop int, item int, amount int NOT NULL);
CREATE TABLE l1 (a int, b int, c int);
CREATE TABLE l2 (b int, c int, d int);
CREATE TABLE l3 (c int, d int, a int);
CREATE TABLE l4 (d int, a int, b int);
