"""Reading of benchmark tools' reports for `judge`: which files are reports, and which of them hold requests.

A report names no tenant and no variant: both come from the options. All reading of formats is in `policies.reports`.
"""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import zstandard

from controller.cli.errors import BadInput
from policies.contract import Contract
from policies.record_files import Columns, RecordFileError, open_text
from policies.reports.read import TOOLS, is_record_line, read_report
from policies.reports.summary import ReportError, Run

_MAX_REPORT = 1 << 30


def runs_in(name: str) -> tuple[Run, ...] | None:
    """The runs of a report; None for a file of request records (`-` is always one)."""
    if name == "-":
        return None
    try:
        with Path(name).open("rb") as stream:
            text = open_text(stream)
            head = text.readline(1 << 20) or b""
            while head.strip() == b"" and head:
                head = text.readline(1 << 20)
            if not head or head[:4] == b"PAR1" or is_record_line(head):
                return None
            content = head + text.read(_MAX_REPORT)
    except OSError as error:
        raise BadInput(name, "", f"cannot be read ({error.strerror})", "give request records or a report") from error
    except (RecordFileError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise BadInput(name, "the file", f"cannot be decompressed ({error})", "it may be cut off") from error
    try:
        return read_report(content)
    except ReportError as error:
        if head.lstrip()[:1] == b"{" and (head.rstrip()[-1:] == b"}" or not _is_json(content)):
            return None  # like JSON lines: the reader of records names the line and the field
        raise BadInput(
            name, "", f"holds no request records, and {error}", f"give records, or a report of {TOOLS}"
        ) from error


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def tenant_of(contract: Contract, given: str | None) -> str:
    """For whom a report stands: the option, else the only required tenant."""
    if given is not None:
        return given
    if len(contract.required) == 1:
        return contract.required[0]
    named = ", ".join(contract.required) or "none"
    raise BadInput("--tenant", "", f"is missing: a report names no tenant, the policy requires {named}", "name one")


def add_runs(runs: Sequence[Run], into: Columns, variant: str, tenant: str) -> None:
    """Append the requests of reports; every run must have them."""
    for number, run in enumerate(runs):
        assert run.records is not None
        rows = ({**r, "id": f"{number}-{r['id']}", "variant": variant, "tenant": tenant} for r in run.records)
        into.add_all(enumerate(rows, start=1), variant)
