"""The common parts of the strategies: diffs, stored states, the script composer, access paths."""
