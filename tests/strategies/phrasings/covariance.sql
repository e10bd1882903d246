-- The covariance matrix of a join.
-- strategy: viewtree

-- as joins
SELECT idivm.covar(f.amount::float8, i.price::float8) AS m FROM f JOIN i ON i.k = f.item;

-- with commas
SELECT idivm.covar(f.amount::float8, i.price::float8) AS m FROM f, i WHERE i.k = f.item;

-- with a CTE
WITH j AS (SELECT f.amount::float8 AS x, i.price::float8 AS y FROM f JOIN i ON i.k = f.item) SELECT idivm.covar(x, y) AS m FROM j;

-- with a subquery
SELECT idivm.covar(j.x, j.y) AS m FROM (SELECT f.amount::float8 AS x, i.price::float8 AS y FROM f JOIN i ON i.k = f.item) AS j;

-- backwards
SELECT idivm.covar(f.amount::float8, i.price::float8) AS m FROM i JOIN f ON i.k = f.item;

-- with a table joined twice by its key
SELECT idivm.covar(f.amount::float8, again.price::float8) AS m FROM f JOIN i ON i.k = f.item JOIN i AS again ON again.k = f.item;

-- with EXISTS over a key
SELECT idivm.covar(f.amount::float8, i.price::float8) AS m FROM f JOIN i ON i.k = f.item WHERE EXISTS (SELECT FROM f AS o WHERE o.id = f.id);

-- as a scalar subquery
SELECT (SELECT idivm.covar(f.amount::float8, i.price::float8) FROM f JOIN i ON i.k = f.item) AS m;
