"""Which tool wrote a document, and its runs. The one entry for reports; files are opened by the caller."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import yaml

from policies.records import REQUIRED_FIELDS
from policies.reports import requests
from policies.reports.summaries import SUMMARIES
from policies.reports.summary import ReportError, Run, Summary

TOOLS = "inference-perf, vLLM or SGLang bench, AIPerf, GenAI-Perf, GuideLLM, genai-bench, LLMPerf, llm-d"


def is_record_line(line: bytes) -> bool:
    """Whether the first line of a file is one of our request records (perhaps a faulty one), not a tool's report."""
    try:
        raw = orjson.loads(line)
    except orjson.JSONDecodeError:
        return b'"t_start_s"' in line or b'"variant"' in line
    return (
        isinstance(raw, dict)
        and len(raw.keys() & {*REQUIRED_FIELDS, "ttft_s", "e2e_s"} - {"id"}) >= 2
        and ("t_start_s" in raw or "variant" in raw or "tenant" in raw)
    )


def read_report(content: bytes) -> tuple[Run, ...]:
    """The runs of a report; ReportError for what no known tool writes."""
    return runs_of(_decode(content))


def _decode(content: bytes) -> Any:
    """A JSON document, JSON lines as a list, or a YAML document."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        pass  # several lines, or YAML
    try:
        return [json.loads(line) for line in content.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        pass  # YAML
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ReportError("it is neither JSON nor YAML") from error


def runs_of(document: Any) -> tuple[Run, ...]:
    """The runs of a decoded document."""
    if isinstance(document, Mapping):
        return _runs_of_object(document)
    if isinstance(document, list) and document and all(isinstance(entry, Mapping) for entry in document):
        return _runs_of_list(document)
    raise ReportError(f"it is no report of {TOOLS}")


def _runs_of_object(document: Mapping[str, Any]) -> tuple[Run, ...]:
    if found := requests.guidellm_runs(document):
        return tuple(found)
    for is_one, read in SUMMARIES:
        if is_one(document):
            summary = read(document)
            found_run = requests.vllm_detailed(document, summary.load) or requests.genai_bench(document, summary.load)
            return (Run(summary) if found_run is None else _completed(found_run, summary),)
    raise ReportError(f"it is no report of {TOOLS}")


def _completed(run: Run, summary: Summary) -> Run:
    """What the tool says beside its requests: its own name, and the served rate."""
    rps = summary.achieved_rps if summary.achieved_rps is not None else run.summary.achieved_rps
    return replace(run, summary=replace(run.summary, tool=summary.tool, achieved_rps=rps))


def _runs_of_list(entries: Sequence[Mapping[str, Any]]) -> tuple[Run, ...]:
    for is_one, read in (
        (requests.is_inference_perf, requests.inference_perf),
        (requests.is_aiperf, requests.aiperf),
        (requests.is_llmperf, requests.llmperf),
    ):
        if is_one(entries):
            return (read(entries),)
    return tuple(run for entry in entries for run in _runs_of_object(entry))  # SGLang bench: one line per run
