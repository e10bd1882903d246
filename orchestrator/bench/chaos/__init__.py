"""Random work with kills, and a check that every view is right afterwards."""
