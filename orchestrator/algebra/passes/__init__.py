"""Rewrites of plans: each takes a plan and returns an equivalent one."""
