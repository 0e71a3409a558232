"""Fixtures that every test file may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data beside the repository; skips the test where it is absent."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("MARCONI_SIM_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder} (MARCONI_SIM_SHARED names another place)")
    return folder
