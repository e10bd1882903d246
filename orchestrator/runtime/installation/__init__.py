"""Create, change and drop views and the objects that maintain them."""
