-- Users who are retweeted within a time range.
SELECT u.uid, retweeted.times, u.tweetsnum, u.favornum
FROM (
    SELECT o.uid, count(*) AS times
    FROM retweets AS r
    JOIN microblog AS t ON t.mid = r.mid
    JOIN microblog AS o ON o.mid = r.remid
    WHERE t.posted >= timestamp '2024-03-01' AND t.posted < timestamp '2024-05-01'
    GROUP BY o.uid
) AS retweeted
JOIN users AS u ON u.uid = retweeted.uid
