FROM sales JOIN stores USING (store) JOIN items USING (item) JOIN transactions USING (date, store) JOIN holidays USING (date) JOIN oil USING (date)
