"""The version, where everything that writes it into a file or below a figure can read it."""

__version__ = "0.1.0"
