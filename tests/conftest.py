"""Fixtures for every test."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline per example: machines are shared, and a slow one says nothing about the code. In CI the examples are the
# same in every run.
settings.register_profile("weighlock", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("weighlock")

CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real files that nobody here wrote; tests that read it skip where it does not exist."""
    root = Path(os.environ.get("WEIGHLOCK_SHARED", CHECKOUT.parent / "shared")) / "data"
    if not root.is_dir():
        pytest.skip(f"{root} is not here: set WEIGHLOCK_SHARED to the folder that holds data/")
    return root
