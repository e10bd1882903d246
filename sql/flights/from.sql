FROM flights JOIN planes USING (tailnum) JOIN weather USING (origin, time_hour) JOIN airports USING (dest) JOIN airlines USING (carrier)
