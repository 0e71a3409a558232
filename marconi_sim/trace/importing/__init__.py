"""From other people's logs to requests."""
