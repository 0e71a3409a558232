"""marconi-sim: a simulator of prefix caching for hybrid (attention + recurrent) language models."""

from __future__ import annotations

__version__ = "0.1.0"
