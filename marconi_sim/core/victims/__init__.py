"""The search for the entry that goes next."""
