"""Command line of the load generator; prints one summary document on stdout."""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import uvloop

from tools.load.plan import PromptWriter, plan_requests, read_trace
from tools.load.runner import Runner, RunOptions
from tools.priority import set_priority

DEFAULT_TRACE = Path(__file__).with_name("traces") / "azure2023-conv-part.csv"


def parse(argv: list[str]) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(prog="python -m tools.load", description="Open-loop streaming load from a trace.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--targets", help="base URLs, comma separated; requests go round robin")
    where.add_argument("--targets-file", type=Path, help="file with one base URL a line, read again when it changes")
    parser.add_argument("--trace", type=Path, default=DEFAULT_TRACE, help="CSV with ContextTokens,GeneratedTokens")
    parser.add_argument("--rate", type=float, default=144.0, help="requests per second over all tenants")
    parser.add_argument("--duration", type=float, default=0.0, help="seconds; 0 is until SIGTERM")
    parser.add_argument("--arrivals", choices=("poisson", "constant"), default="poisson")
    parser.add_argument("--tenants", default="acme,globex,initech")
    parser.add_argument(
        "--shared-prefix-tenant", default="globex", help="whose long prompts share a prefix; '' for none"
    )
    parser.add_argument("--shared-prefix-share", type=float, default=0.9, help="share of such a prompt that is shared")
    parser.add_argument("--model", default=None, help="model field of the request; left out by default")
    parser.add_argument("--path", default="/v1/chat/completions")
    parser.add_argument("--max-output", type=int, default=256, help="cap on max_tokens")
    parser.add_argument("--min-output", type=int, default=1, help="floor on max_tokens")
    parser.add_argument("--max-prompt", type=int, default=16000, help="cap on prompt tokens")
    parser.add_argument("--no-usage", action="store_true", help="do not ask for usage; TPOT is then not measurable")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds after which a request counts as timeout")
    parser.add_argument("--drain", type=float, default=30.0, help="seconds to wait for requests in flight at the end")
    parser.add_argument("--out", type=Path, default=None, help="request records, JSON Lines")
    parser.add_argument(
        "--stats-file", type=Path, default=None, help="live aggregate, one JSON line a second, appended"
    )
    parser.add_argument("--nice", type=int, default=0, help="process priority; below 0 needs the right to")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


def target_source(options: argparse.Namespace) -> Callable[[], list[str]]:
    """A function that says where to send now; a file is read again only when it has changed."""
    if options.targets:
        fixed = [url.rstrip("/") for url in options.targets.split(",") if url]
        return lambda: fixed
    path: Path = options.targets_file
    seen: tuple[int, list[str]] = (-1, [])

    def read() -> list[str]:
        nonlocal seen
        with contextlib.suppress(FileNotFoundError):  # being replaced: keep the last list
            stamp = path.stat().st_mtime_ns
            if stamp != seen[0]:
                lines = path.read_text().replace(",", "\n").split()
                seen = (stamp, [line.rstrip("/") for line in lines if not line.startswith("#")])
        return seen[1]

    return read


async def run(options: argparse.Namespace) -> dict[str, object]:
    """One run from parsed flags; the summary."""
    plan = plan_requests(
        read_trace(options.trace),
        [tenant for tenant in options.tenants.split(",") if tenant],
        options.rate,
        options.seed,
        output_cap=options.max_output,
        output_floor=options.min_output,
        prompt_cap=options.max_prompt,
        arrivals=options.arrivals,
    )
    prompts = PromptWriter(options.seed, options.shared_prefix_tenant or None, options.shared_prefix_share)
    targets = target_source(options)
    if not targets():
        raise ValueError("no targets")
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(options.out.open("a")) if options.out else None
        runner = Runner(
            RunOptions(
                targets=targets,
                duration_seconds=options.duration,
                timeout_seconds=options.timeout,
                drain_seconds=options.drain,
                model=options.model,
                include_usage=not options.no_usage,
                path=options.path,
                out=out,
                stats_file=options.stats_file,
            ),
            plan,
            prompts,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, runner.stop.set)
        before = time.process_time()
        summary = await runner.run()
        summary["cpu_seconds"] = round(time.process_time() - before, 3)
    return summary


def main() -> int:
    """Runs, prints the summary; 2 on bad input."""
    options = parse(sys.argv[1:])
    try:
        if options.nice:
            set_priority(options.nice)
        summary = uvloop.run(run(options))
    except (ValueError, OSError) as error:
        print(f"tools.load: {error}", file=sys.stderr)
        return 2
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
