"""The simulator against a real model: reuse is exact or not, and prefills take the predicted time or not."""

# Before any module of this package gets to its own `import torch`: says which extra is missing.
import marconi_sim.adapters  # noqa: F401
