FROM house JOIN shop USING (postcode) JOIN restaurant USING (postcode) JOIN institution USING (postcode) JOIN demographics USING (postcode) JOIN transport USING (postcode)
