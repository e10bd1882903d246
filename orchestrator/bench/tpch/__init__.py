"""The queries of TPC-H as maintained views."""
