"""`idivm bench all`: run the benchmarks of a profile, and write a report as pages."""
