"""Reading of policies and record files for `judge` and `plan`; every fault becomes a BadInput that names the place."""

import os
import sys
from pathlib import Path
from typing import IO, Any, cast

import yaml

from controller.cli.errors import BadInput
from controller.cli.progress import Progress, Watched
from policies.contract import Contract, ContractError, contract_from_mapping
from policies.record_files import Columns, RecordFileError, read_records


def load_contract(name: str) -> Contract:
    """The contract of a YAML file with a RolloutPolicy, or its bare spec."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(name, "", "is no UTF-8 text", "give a RolloutPolicy in YAML") from error
    except OSError as error:
        raise BadInput(name, "", f"cannot be read ({error.strerror})", "give a RolloutPolicy in YAML") from error
    try:
        documents = [d for d in yaml.safe_load_all(text) if d is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f"line {mark.line + 1}"
        raise BadInput(name, where, "is no YAML", "correct the syntax") from error
    policies = [d for d in documents if isinstance(d, dict) and d.get("kind", "RolloutPolicy") == "RolloutPolicy"]
    if len(policies) != 1:
        found = "no RolloutPolicy" if not policies else f"{len(policies)} RolloutPolicies"
        raise BadInput(name, "", f"holds {found}", "give exactly one")
    spec: Any = policies[0]
    if "kind" in spec or "apiVersion" in spec or set(spec) == {"spec"}:
        spec = spec.get("spec")
        if not isinstance(spec, dict):
            raise BadInput(name, "spec", "is missing", "write the policy under spec")
    try:
        return contract_from_mapping(spec)
    except ContractError as error:
        raise BadInput(name, error.field, error.problem, error.remedy) from error


def read_columns(name: str, into: Columns, variant: str | None = None, progress: Progress | None = None) -> None:
    """Append a file of request records (JSON Lines, gzip, zstd, Parquet; `-` = standard input)."""
    try:
        if name == "-":
            read_records(sys.stdin.buffer, into, variant)
            return
        with Path(name).open("rb") as stream:
            if progress is None:
                read_records(stream, into, variant)
            else:
                size = os.fstat(stream.fileno()).st_size
                whole = cast(IO[bytes], Watched(stream, size, progress.doing(f"read {Path(name).name}")))
                read_records(whole, into, variant)
    except OSError as error:
        raise BadInput(name, "", f"cannot be read ({error.strerror})", "give a file of request records") from error
    except RecordFileError as error:
        raise BadInput(name, error.where, error.problem, error.remedy) from error


def refuse_nothing(name: str, columns: Columns, remedy: str) -> None:
    """BadInput for a file without any usable record."""
    if columns.lines:
        return
    if unusable := columns.treated.get("badTime", 0):
        problem = f"none of its {unusable} records has a usable t_start_s"
        raise BadInput(name, "", problem, "write seconds since 1970, not milliseconds, as a positive number")
    raise BadInput(name, "", "holds no request record", remedy)
