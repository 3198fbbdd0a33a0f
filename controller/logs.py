"""How the operator logs: one JSON object a line on stderr, without credentials, whatever an error's text holds.

Called by controller/cli/operator.py before anything else.
"""

import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from manifests.secrets import redact_text


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor: every text of an event without what looks like a credential (tracebacks are texts by then)."""
    return {key: redact_text(value) if isinstance(value, str) else value for key, value in event.items()}


def log_as_json() -> None:
    """Set the process's logging up."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
