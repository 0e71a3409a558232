"""What everything stands on: files, TOML documents, the catalogue, units, errors, notices, progress."""
