"""Strategies turn an algebra plan into a maintenance plan, and `choose` picks one."""
