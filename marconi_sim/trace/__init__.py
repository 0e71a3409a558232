"""Traces: readers of session files, the compiled prefix index, arrival times."""
