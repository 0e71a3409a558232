"""The radix-tree cache: its steps, its journal and its replay."""
