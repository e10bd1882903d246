"""What the strategies share: diffs, stored states, the script composer, access paths."""
