"""`manage.py explore`: every state that the protocol can reach, within bounds. It spans two apps, so it
lives here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from time import perf_counter
from typing import Any, Final

from django.core.management.base import CommandParser
from rich.console import Console, RenderableType
from rich.status import Status
from rich.table import Table
from rich.text import Text

from jobs.protocol.bounds import FAULTS, Bounds
from jobs.protocol.explorer import Exploration, Watch
from jobs.protocol.explorer_trace import Told, trace
from jobs.protocol.liveness import Starved
from remora_site import exploration
from workers.management.console import Exit, Refusal, RemoraCommand

HELP: Final = {
    "jobs": "jobs",
    "workers": "worker incarnations",
    "initial_workers": "how many of them are Up at first (default: all)",
    "max_attempts": "attempts that a job may have",
    "max_progress": "progress units of an attempt",
    "lease_limit": "ticks that a lease lasts",
    "reservation_limit": "ticks that a reservation lasts",
    "local_limit": "permits of a worker",
    "global_limit": "permits of the fleet",
    "coord_losses": "how often the CoordinationStore may be wiped",
    "partitions": "how often a link may be cut",
    "credential_intents": "credential intents of a job",
}


class Command(RemoraCommand):
    help = (
        "Explore every state that the protocol can reach within bounds, by the same pure functions that the "
        "stores call, and check every invariant, every action property and deadlock in each. Exit 1 if one "
        "breaks."
    )
    examples = """\
  manage.py explore
  manage.py explore --max-attempts 2 --local-limit 2 --global-limit 2 --liveness
  manage.py explore --workers 2 --faults crash,coordination --coord-losses 1 --json
"""

    def add_options(self, parser: CommandParser) -> None:
        for field in fields(Bounds):
            if field.name != "faults":
                default = None if field.name == "initial_workers" else field.default
                parser.add_argument(
                    f"--{field.name.replace('_', '-')}", type=int, metavar="N", default=default,
                    help=HELP[field.name] + ("" if default is None else f" (default {default})"),
                )  # fmt: skip
        parser.add_argument("--faults", default="none", help=f"none, or any of {','.join(FAULTS)}")
        parser.add_argument("--liveness", action="store_true", help="check the liveness properties too")
        parser.add_argument("--states-max", type=int, metavar="N", help="stop after about so many states")
        parser.add_argument("--all-violations", action="store_true", help="go on after the first one")

    def run(self, options: Mapping[str, Any]) -> Exit:
        bounds = bounds_of(options)
        with Status("", console=Console(stderr=True)) as status:
            found, seconds = exploration.explore_all(
                bounds,
                watch=pace_shown(status),
                states_max=options["states_max"],
                stop_at_first=not options["all_violations"],
            )
            report = exploration.report(found, seconds)
            failed: list[Starved] = []
            if options["liveness"] and found.complete and not found.violations:
                status.update(f"liveness of {found.distinct:,} states")
                failed = exploration.check_liveness_all(found, report)
        if self.as_json:
            self.answer(report)
        else:
            self.show(*drawn(found, report, failed))
        return Exit.NO if report["violations"] else Exit.OK


def pace_shown(status: Status) -> Watch:
    """Shows after each level how far the exploration is."""
    began = perf_counter()

    def watch(found: Exploration, waiting: int) -> None:
        pace = found.distinct / (perf_counter() - began)
        status.update(f"depth {found.depth}: {found.distinct:,} states, {waiting:,} waiting, {pace:,.0f}/s")

    return watch


def bounds_of(options: Mapping[str, Any]) -> Bounds:
    """The bounds that were asked for, or a Refusal that names the option."""
    named = {name.strip() for name in options["faults"].split(",") if name.strip()} - {"none"}
    if unknown := sorted(named - FAULTS.keys()):
        raise Refusal("faults", f"unknown: {', '.join(unknown)}; known: none, {', '.join(FAULTS)}")
    chosen = {field.name: options[field.name] for field in fields(Bounds) if field.name != "faults"}
    if chosen["initial_workers"] is None:
        chosen["initial_workers"] = chosen["workers"]
    try:
        return Bounds(**chosen, faults=frozenset(named))
    except ValueError as error:
        raise Refusal(str(error).split()[0].replace("_", "-"), str(error)) from error


def drawn(
    found: Exploration, report: Mapping[str, Any], failed: Iterable[Starved]
) -> Iterator[RenderableType]:
    """The account for people."""
    pace = found.distinct / max(report["seconds"], 1e-6)
    whole = "" if found.complete else ", not all"
    yield Text(
        f"{found.distinct:,} distinct states{whole}, depth {found.depth}, {report['seconds']:.1f} s, "
        f"{pace:,.0f} states/s"
    )
    table = Table("action", "steps", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for action, count in report["transitions"].items():
        table.add_row(action, Text(f"{count:,}", "" if count else "dim"))
    yield table
    for violation in found.violations:
        yield Text(f"\n{violation.property} is violated. A shortest way there:", "bold red")
        yield from told(trace(found, violation))
    if not found.violations:
        yield Text("\nEvery invariant and action property holds; no deadlock.", "bold green")
    if "liveness" in report:
        yield from liveness_drawn(report["liveness"]["checked"], failed)


def liveness_drawn(checked: list[str], failed: Iterable[Starved]) -> Iterator[RenderableType]:
    starved = list(failed)
    for run in starved:
        yield Text(f"\n{run.about} fails, fairly. After", "bold red")
        yield from told(run.way)
        yield Text("  for ever:" if run.round else "  nothing happens any more.")
        yield from told(run.round)
    if not starved:
        yield Text(f"Every liveness property holds under fairness: {', '.join(checked)}.", "bold green")


def told(steps: Iterable[Told]) -> Iterator[RenderableType]:
    for number, step in enumerate(steps, start=1):
        yield Text(f"{number:3d}. {step.label}", "bold")
        for name, (before, after) in step.changed.items():
            yield Text(f"       {name}: {shown(before)} -> {shown(after)}")


def shown(value: object) -> str:
    return "-" if value is None else str(value)
