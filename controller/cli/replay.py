"""`weighlock replay`: the requests of a trace, open loop, against any OpenAI-compatible URL."""

import argparse
import asyncio
import contextlib
from pathlib import Path
from typing import Any, BinaryIO

from controller.cli.errors import BadInput
from controller.cli.input_files import read_whole
from controller.cli.output import emit, note
from crds.v1alpha1.common import parse_duration_seconds
from shadow.replay.schedule import Planned, PromptWriter, plan
from shadow.replay.traces import FORMATS, Trace, TraceRefused, read_trace

MAX_BYTES = 2 * 1024**3
_TOO_LARGE = "cut it to the hours that you want to replay"


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of `weighlock replay`."""
    parser.add_argument("trace", metavar="TRACE", help="CSV, JSON lines or JSON, gzip or not; - for stdin")
    parser.add_argument("--dry-run", action="store_true", help="read the trace, say what is in it, send nothing")
    parser.add_argument(
        "--target", metavar="URL", help="server to send to; a path of its own replaces chat completions"
    )
    parser.add_argument("--format", default="auto", metavar="F", help=f"auto, {', '.join(f.name for f in FORMATS)}")
    parser.add_argument("--rate", type=float, metavar="RPS", help="requests per second; keeps the trace's bursts")
    parser.add_argument("--duration", metavar="D", help="send for this long only (90s, 10m)")
    parser.add_argument("--tenant-from", metavar="FIELD", help="column or key of the trace that names the tenant")
    parser.add_argument("--tenant", default="replay", help="tenant of requests that name none (default: replay)")
    parser.add_argument("--tenant-header", default="x-tenant", metavar="H", help="header that carries the tenant")
    parser.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="sent with each request")
    parser.add_argument("--model", help="model name to ask for (default: the first one that the target lists)")
    parser.add_argument("--variant", choices=("stable", "candidate"), default="stable", help="which arm this run is")
    parser.add_argument("--timeout", default="10m", metavar="D", help="give up on an answer after this (default: 10m)")
    parser.add_argument("--seed", type=int, default=1, help="of prompts, and of arrivals where the trace has no times")
    parser.add_argument("--out", metavar="FILE", help="write request records here, as JSON lines")


def run(args: argparse.Namespace) -> int:
    """0 after a run; 2 for what is no trace or no target. A lagging run is said to be invalid, and is."""
    trace = _trace(args)
    if trace.left_out:
        note(f"{args.trace}: {trace.left_out} lines without lengths are left out")
    if args.tenant_from and not any(row.tenant for row in trace.rows):
        note(f"{args.trace}: no request names a tenant by {args.tenant_from!r}; all are of {args.tenant!r}")
    if args.dry_run:
        emit(args, _content(trace), lambda: _content_text(trace))
        return 0
    planned = _planned(args, trace)
    report = _send(args, planned)
    emit(args, report, lambda: _report_text(report))
    return 0


def _trace(args: argparse.Namespace) -> Trace:
    try:
        return read_trace(read_whole(args.trace, MAX_BYTES, _TOO_LARGE), args.format, args.tenant_from)
    except TraceRefused as refused:
        raise BadInput(args.trace, refused.where, refused.problem, refused.remedy) from refused


def _planned(args: argparse.Namespace, trace: Trace) -> list[Planned]:
    if args.target is None:
        raise BadInput("--target", "", "is missing", "name the server to send to, or use --dry-run")
    if not args.target.startswith(("http://", "https://")):
        raise BadInput("--target", "", f"{args.target!r} is no URL", "write for example http://127.0.0.1:8000")
    if args.rate is not None and not 0 < args.rate < 1e6:
        raise BadInput("--rate", "", f"{args.rate} is no rate", "give requests per second")
    duration = _seconds("--duration", args.duration) if args.duration else None
    try:
        planned = plan(trace, args.rate, duration, args.seed)
    except ValueError as error:
        raise BadInput(args.trace, "", "has no times", "give --rate, in requests per second") from error
    if not planned:
        raise BadInput("--duration", "", "ends before the first request", "give a longer one")
    return planned


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration_seconds(text)
    except ValueError as error:
        raise BadInput(option, "", f"{text!r} is no duration", "write for example 90s or 10m") from error


def _headers(given: list[str]) -> dict[str, str]:
    pairs = [text.partition(":") for text in given]
    for name, colon, _ in pairs:
        if not colon or not name.strip():
            raise BadInput("--header", "", f"{name!r} is no header", "write 'Name: value'")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _send(args: argparse.Namespace, planned: list[Planned]) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        out: BinaryIO | None = None
        if args.out:
            try:
                out = stack.enter_context(Path(args.out).open("wb"))
            except OSError as error:
                raise BadInput(args.out, "", f"cannot be written ({error.strerror})", "name another file") from error
        return asyncio.run(_run(args, planned, out))


async def _run(args: argparse.Namespace, planned: list[Planned], out: BinaryIO | None) -> dict[str, Any]:
    import httpx

    from shadow.replay.sender import Sender, Target, find_model

    target = Target(
        args.target,
        model=args.model,
        tenant=args.tenant,
        tenant_header=args.tenant_header,
        variant=args.variant,
        timeout_s=_seconds("--timeout", args.timeout),
        headers=_headers(args.header),
    )
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=1000)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:
        try:
            httpx.URL(args.target)
            model = args.model or await find_model(client, target)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise BadInput(
                "--target", "", f"{args.target} does not answer ({error})", "check it, or --model"
            ) from error
        target = Target(**{name: getattr(target, name) for name in Target.__slots__} | {"model": model})
        sender = Sender(
            client,
            target,
            PromptWriter(args.seed),
            keep=(lambda record: None) if out is None else (lambda record: _write(out, record.to_json_line())),
            progress=lambda report, waiting: note(f"{report.sent} of {len(planned)} sent, {waiting} in flight"),
        )
        return (await sender.run(planned)).to_json()


def _write(out: BinaryIO, line: bytes) -> None:
    out.write(line)


def _content(trace: Trace) -> dict[str, Any]:
    head = [
        {"t_s": row.t_s, "prompt_tokens": row.prompt_tokens, "output_tokens": row.output_tokens}
        for row in trace.rows[:3]
    ]
    return {
        "requests": len(trace.rows),
        "prompt_tokens": sum(row.prompt_tokens for row in trace.rows),
        "output_tokens": sum(row.output_tokens for row in trace.rows),
        "span_s": trace.span_s,
        "format": trace.format,
        "head": head,
    }


def _content_text(trace: Trace) -> str:
    content = _content(trace)
    count, span = content["requests"], content["span_s"]
    rate = f"{count / span:.2f} requests/s over {span:.1f} s" if span else "no times: give --rate to replay it"
    return (
        f"{count:,} requests ({content['format']}), {content['prompt_tokens']:,} prompt and "
        f"{content['output_tokens']:,} output tokens\n{rate}"
    )


def _report_text(report: dict[str, Any]) -> str:
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in report["outcomes"].items())
    lag = f"schedule lag P99 {report['lag_p99_s'] * 1000:.1f} ms"
    if not report["lag_valid"]:
        lag += ": this machine could not keep the schedule, so the latencies are not valid; lower --rate"
    rates = f"{report['achieved_rps']} requests/s sent of {report['offered_rps']} planned"
    return f"{report['sent']} sent, {report['completed']} answered: {outcomes}\n{rates}\n{lag}"
