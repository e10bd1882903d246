-- The number of 4-cliques of a directed graph.
-- strategy: skew

-- as joins
SELECT count(*) AS n FROM m ab JOIN m ac ON ac.src = ab.src JOIN m ad ON ad.src = ab.src JOIN m bc ON bc.src = ab.dst AND bc.dst = ac.dst JOIN m bd ON bd.src = ab.dst AND bd.dst = ad.dst JOIN m cd ON cd.src = ac.dst AND cd.dst = ad.dst;

-- with commas
SELECT count(*) AS n FROM m ab, m ac, m ad, m bc, m bd, m cd WHERE ab.src = ac.src AND ac.src = ad.src AND ab.dst = bc.src AND bc.src = bd.src AND ac.dst = bc.dst AND bc.dst = cd.src AND ad.dst = bd.dst AND bd.dst = cd.dst;

-- with renamed columns
SELECT count(*) AS n FROM m AS ab (a, b) JOIN m AS ac (a, c) USING (a) JOIN m AS ad (a, d) USING (a) JOIN m AS bc (b, c) USING (b, c) JOIN m AS bd (b, d) USING (b, d) JOIN m AS cd (c, d) USING (c, d);

-- with natural joins
SELECT count(*) AS n FROM m AS ab (a, b) NATURAL JOIN m AS ac (a, c) NATURAL JOIN m AS ad (a, d) NATURAL JOIN m AS bc (b, c) NATURAL JOIN m AS bd (b, d) NATURAL JOIN m AS cd (c, d);

-- with a CTE of triangles
WITH abc AS (SELECT ab.src AS a, ab.dst AS b, ac.dst AS c FROM m ab JOIN m ac ON ac.src = ab.src JOIN m bc ON bc.src = ab.dst AND bc.dst = ac.dst) SELECT count(*) AS n FROM abc JOIN m ad ON ad.src = abc.a JOIN m bd ON bd.src = abc.b AND bd.dst = ad.dst JOIN m cd ON cd.src = abc.c AND cd.dst = ad.dst;

-- with row comparisons
SELECT count(*) AS n FROM m ab JOIN m ac ON ac.src = ab.src JOIN m bc ON (bc.src, bc.dst) = (ab.dst, ac.dst) JOIN m ad ON ad.src = ab.src JOIN m bd ON (bd.src, bd.dst) = (ab.dst, ad.dst) JOIN m cd ON (cd.src, cd.dst) = (ac.dst, ad.dst);

-- backwards
SELECT count(*) AS n FROM m cd JOIN m bd ON bd.dst = cd.dst JOIN m bc ON bc.dst = cd.src AND bc.src = bd.src JOIN m ad ON ad.dst = cd.dst JOIN m ac ON ac.dst = cd.src AND ac.src = ad.src JOIN m ab ON ab.src = ad.src AND ab.dst = bd.src;

-- as a scalar subquery
SELECT (SELECT count(*) FROM m ab, m ac, m ad, m bc, m bd, m cd WHERE ab.src = ac.src AND ac.src = ad.src AND ab.dst = bc.src AND bc.src = bd.src AND ac.dst = bc.dst AND bc.dst = cd.src AND ad.dst = bd.dst AND bd.dst = cd.dst) AS n;
