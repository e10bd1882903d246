"""Creates, changes and drops views and the objects that maintain them."""
