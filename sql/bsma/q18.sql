-- Pairwise count of mentions.
SELECT u.uid, pair.mentioned, pair.times, u.tweetsnum, u.favornum
FROM (
    SELECT t.uid, m.uid AS mentioned, count(*) AS times
    FROM mentions AS m JOIN microblog AS t ON t.mid = m.mid
    GROUP BY t.uid, m.uid
) AS pair
JOIN users AS u ON u.uid = pair.uid
