"""The console: pages over HTTP that show how fresh views are, and how they are maintained."""
