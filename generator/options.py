"""What the commands share: options, the folder that they work on, progress, and how they end."""

from __future__ import annotations

import atexit
import gc
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from generator import catalog
from generator.errors import Diagnostic, ManifestError

REPOSITORY = Path(__file__).parent.parent
STALE, MISTAKE = 1, 2
JSON_VERSION = 1

manifests_option = click.option(
    "--manifests",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=catalog.BUILT_IN,
    help="Folder with models/*.toml and targets/*.toml [default: the ones that ship with codegen].",
)
output_option = click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder for emitted modules [default: generated/ of the clone].",
)
target_option = click.option("--target", metavar="T", help="Only this board, for example n150.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
record_option = click.option(
    "--record", "recorded", is_flag=True, help="Write what was shown to proofs.json beside the modules; see list."
)


class Seconds(click.FloatRange):
    """A finite number of seconds: a range alone lets nan and inf through, which JSON cannot say."""

    def __init__(self, above_zero: bool = False) -> None:
        super().__init__(min=0, min_open=above_zero)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds


window_option = click.option(
    "--window",
    metavar="SECONDS",
    type=Seconds(),
    default=0.0,
    help="Prompts that arrive within so long of the first make a call [default: 0, every prompt by itself].",
)


delay_option = click.option(
    "--most-delay",
    metavar="SECONDS",
    type=Seconds(),
    callback=lambda ctx, param, value: math.inf if value is None else value,
    help="Where rows of any lengths are packed: a prompt's pass takes at most so much longer than the one that it has by itself "
    "[default: no bound].",
)


def output_folder(chosen: Path | None) -> Path:
    """The folder of emitted modules to write to. Raises ManifestError where none is named and there is no clone."""
    if chosen is not None:
        return chosen
    if not (REPOSITORY / "pyproject.toml").exists():
        rule = "codegen is installed outside a clone, so there is no generated/ folder of its own"
        raise ManifestError([Diagnostic("--output", None, "", "", rule, "name a folder with --output DIR")])
    return REPOSITORY / "generated"


@contextmanager
def undisturbed() -> Iterator[None]:
    """Without the search for cycles of garbage, and without the one at the end of the process, whose memory the system takes back.

    Trees have no cycles, and to find that out among so many nodes takes a third of the time of a build.
    """
    atexit.register(gc.freeze)
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()


@contextmanager
def progress_line(as_json: bool) -> Iterator[Callable[[str], None]]:
    """Shows which module is being looked at, on a terminal and once a second has passed; silent elsewhere."""
    if as_json or not sys.stderr.isatty():
        yield lambda path: None
        return
    began = time.monotonic()

    def step(path: str) -> None:
        if time.monotonic() - began > 1:
            click.echo(f"\r\x1b[K{path}", nl=False, err=True)

    try:
        yield step
    finally:
        click.echo("\r\x1b[K", nl=False, err=True)
