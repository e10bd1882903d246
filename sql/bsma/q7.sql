-- Mentioned users within a time range.
SELECT u.uid, mentioned.times, u.tweetsnum, u.favornum
FROM (
    SELECT m.uid, count(*) AS times
    FROM mentions AS m JOIN microblog AS t ON t.mid = m.mid
    WHERE t.posted >= timestamp '2024-03-01' AND t.posted < timestamp '2024-05-01'
    GROUP BY m.uid
) AS mentioned
JOIN users AS u ON u.uid = mentioned.uid
