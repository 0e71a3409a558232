"""From a trace to files for others: token logs, smaller traces, drawn tokens."""
