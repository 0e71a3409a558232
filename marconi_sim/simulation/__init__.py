"""A replay from its arguments to its result."""
