"""An app with orders and a maintained view of them."""
