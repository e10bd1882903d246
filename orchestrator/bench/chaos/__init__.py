"""Random work with kills, and whether every view is right afterwards."""
