-- Aggregate of friends of friends within the same city.
SELECT u.uid, count(*) AS friends, sum(w.tweetsnum) AS tweets, sum(w.favornum) AS favorites
FROM users AS u
JOIN friendlist AS f ON f.uid = u.uid
JOIN friendlist AS g ON g.uid = f.friend_id
JOIN users AS w ON w.uid = g.friend_id
WHERE w.city = u.city
GROUP BY u.uid
