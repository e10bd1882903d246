"""Measure the console, and the program that serves it."""
