FROM e AS p JOIN e AS q ON q.x = p.y JOIN e AS o ON o.x = q.y JOIN e AS l ON l.x = o.y AND l.y = p.x
