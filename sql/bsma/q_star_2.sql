-- Aggregate of retweeters for every user.
SELECT o.uid, count(*) AS retweets, sum(u.tweetsnum) AS tweets, sum(u.favornum) AS favorites
FROM microblog AS o
JOIN retweets AS r ON r.remid = o.mid
JOIN microblog AS t ON t.mid = r.mid
JOIN users AS u ON u.uid = t.uid
GROUP BY o.uid
