"""View trees, measured as in papers/fivm.txt."""
