"""Time to plan and create views over growing queries."""
