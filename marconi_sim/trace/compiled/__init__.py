"""A trace in its compiled form, and how requests become one."""
