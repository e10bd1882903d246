"""Capture from the WAL: decode what a replication slot holds, and log it as the capture triggers would."""
