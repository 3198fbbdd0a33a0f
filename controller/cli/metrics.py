"""`weighlock metrics`: an engine's /metrics under canonical names. Names and rules are in `manifests.engines`."""

import argparse
import urllib.error
import urllib.request

from controller.cli.errors import BadInput
from controller.cli.manifest_files import read_bytes
from controller.cli.output import emit
from manifests.engines.metrics import Metrics, NotExposition, Value, parse_metrics

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
