FROM e AS ab JOIN e AS ac ON ac.x = ab.x JOIN e AS bc ON bc.x = ab.y AND bc.y = ac.y
JOIN e AS ad ON ad.x = ab.x JOIN e AS bd ON bd.x = ab.y AND bd.y = ad.y JOIN e AS cd ON cd.x = ac.y AND cd.y = ad.y
