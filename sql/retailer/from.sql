FROM inventory JOIN location USING (locn) JOIN weather USING (locn, dateid) JOIN item USING (ksn) JOIN census USING (zip)
