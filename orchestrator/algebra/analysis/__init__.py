"""Facts about plans and expressions."""
