"""The prefix index, and what a replay reads of it."""
