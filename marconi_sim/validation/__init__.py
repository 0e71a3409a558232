"""The simulator against a real model: reuse is exact or not, and prefills take the predicted time or not."""
