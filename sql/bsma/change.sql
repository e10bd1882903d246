UPDATE users SET tweetsnum = tweetsnum + 1, favornum = favornum + 2
WHERE uid IN (SELECT uid FROM users ORDER BY hashint4extended(uid, %(round)s) LIMIT %(d)s)
