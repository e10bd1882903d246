-- Aggregate of users who tweet about topics.
SELECT e.eid, count(*) AS users, sum(u.tweetsnum) AS tweets, avg(u.favornum) AS favorites
FROM rel_event_microblog AS e
JOIN microblog AS t ON t.mid = e.mid
JOIN users AS u ON u.uid = t.uid
GROUP BY e.eid
