"""Many replays: an experiment's file, its runs, their workers, and the table that they fill."""
