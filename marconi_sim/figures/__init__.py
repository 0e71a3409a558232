"""Figures: drawn from the files of sweeps, from traces and from the formulas of models."""
