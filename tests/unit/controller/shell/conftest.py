"""The operator over fakes at rest: its first revision serves."""

import pytest

from tests.unit.controller.shell.shell import Shell


@pytest.fixture
def shell() -> Shell:
    shell = Shell()
    shell.apply()
    shell.run_to("Completed")
    shell.once()
    return shell
