-- Of one postcode, another house, shop and restaurant in the place of the first, and new figures of the rest.
UPDATE house SET price = {round} WHERE (postcode, house_id) = ({postcode}, {id});
UPDATE shop SET shop_prices = {round} WHERE (postcode, shop_id) = ({postcode}, {id});
UPDATE restaurant SET restaurant_prices = {round} WHERE (postcode, restaurant_id) = ({postcode}, {id});
UPDATE institution SET institution_size = {round} WHERE postcode = {postcode};
UPDATE demographics SET crimes = {round} WHERE postcode = {postcode};
UPDATE transport SET buses = {round} WHERE postcode = {postcode}
