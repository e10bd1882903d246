FROM e AS p JOIN e AS q ON q.x = p.y JOIN e AS o ON o.x = q.y AND o.y = p.x
