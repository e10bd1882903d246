"""What a feed adds to refreshes, and how soon a subscriber has their changes."""
