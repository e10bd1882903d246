"""What views cost that SQL alone creates, and whether a dump of them restores into views that are maintained."""
