"""`weighlock metrics`: an engine's /metrics under canonical names. Names and rules are in `manifests.engines`."""

import argparse
import urllib.error
import urllib.request
from collections.abc import Sequence

from controller.cli.errors import BadInput
from controller.cli.manifest_files import read_bytes
from controller.cli.output import emit
from manifests.engines.metrics import Metrics, NotExposition, Value, parse_metrics
from policies.guards import CacheUse

_MAX_PAGE = 32 * 1024 * 1024


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of `weighlock metrics`."""
    parser.add_argument(
        "source", metavar="FILE|URL", help="a saved page, the URL of an engine's /metrics, or - for stdin"
    )


def run(args: argparse.Namespace) -> int:
    """0, or 2 when the page is no exposition."""
    page = read_page(args.source)
    emit(args, page.to_json(), lambda: _text(page))
    return 0


def read_page(source: str) -> Metrics:
    """The page of a file or URL under canonical names."""
    data = _fetch(source) if source.startswith(("http://", "https://")) else read_bytes(source)
    try:
        return parse_metrics(data.decode("utf-8", "replace"))
    except NotExposition as error:
        raise BadInput(
            source, "", f"is no Prometheus exposition: {error}", "give the engine's /metrics as it is served"
        ) from error


def cache_use(sources: Sequence[str]) -> CacheUse:
    """Prefix-cache use between two pages of an engine, or since it started where there is one page.

    BadInput for a page that does not say.
    """
    if len(sources) > 2:
        raise BadInput(sources[2], "", "is one page too many", "give the page at the end, or those of begin and end")
    pairs = [_cache_counts(source) for source in sources]
    (hits, queries), before = pairs[-1], pairs[0] if len(pairs) == 2 else (0.0, 0.0)
    if hits < before[0] or queries < before[1]:
        before = (0.0, 0.0)  # the engine was restarted in between: everything since then is of this step
    return CacheUse(hits - before[0], queries - before[1])


def _cache_counts(source: str) -> tuple[float, float]:
    page = read_page(source)
    found = [page.metrics.get(f"prefix_cache_{name}_tokens_total") for name in ("hit", "query")]
    hits, queries = (None if value is None else value.value for value in found)
    if hits is None or queries is None:
        problem = f"({page.engine}) has no counters of prefix-cache hits and queries"
        raise BadInput(source, "", problem, "switch the engine's prefix caching and metrics on, or leave it out")
    return hits, queries


def _fetch(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bytes(answer.read(_MAX_PAGE))
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise BadInput(
            url, "", f"cannot be fetched ({error})", "check the address and that metrics are switched on"
        ) from error


def _text(page: Metrics) -> str:
    hint = f" {page.version_hint}" if page.version_hint else ""
    out = [f"engine {page.engine}{hint}"]
    out += [f"  {name:<34} {_shown(value):>18}  {value.raw_name}" for name, value in page.metrics.items()]
    out += [f"warning: {warning}" for warning in page.warnings]
    return "\n".join(out)


def _shown(value: Value) -> str:
    if value.kind == "histogram":
        return f"n={value.count:g}" if value.count is not None else "n unknown"
    if value.kind == "info":
        return "info"
    return "unknown" if value.value is None else f"{value.value:g}"
