-- Pairs of retweeting users, with how often one retweets the other.
SELECT u.uid, pair.retweeted, pair.times, u.tweetsnum, u.favornum
FROM (
    SELECT t.uid, o.uid AS retweeted, count(*) AS times
    FROM retweets AS r
    JOIN microblog AS t ON t.mid = r.mid
    JOIN microblog AS o ON o.mid = r.remid
    GROUP BY t.uid, o.uid
) AS pair
JOIN users AS u ON u.uid = pair.uid
