"""Fixtures of the manifest package's tests."""

import pytest

from tests.unit.manifests.builders import Build, build_import


@pytest.fixture
def build() -> Build:
    """Imports what :func:`deployment` writes."""
    return build_import
