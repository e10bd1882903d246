"""F-IVM (papers/fivm.txt): joins with grouped aggregates, maintained by a tree of views."""
