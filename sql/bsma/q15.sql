-- Users talking about events within a time range.
SELECT talking.eid, u.uid, talking.times, u.tweetsnum, u.favornum
FROM (
    SELECT e.eid, t.uid, count(*) AS times
    FROM rel_event_microblog AS e JOIN microblog AS t ON t.mid = e.mid
    WHERE t.posted >= timestamp '2024-01-01' AND t.posted < timestamp '2024-11-01'
    GROUP BY e.eid, t.uid
) AS talking
JOIN users AS u ON u.uid = talking.uid
