"""The rules of the authors' published code."""
