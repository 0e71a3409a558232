"""`marconi-sim trace`: make compiled traces, describe, check and export them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from marconi_sim.base.errors import UsageError
from marconi_sim.base.notices import notice
from marconi_sim.cli.options import catalogue_option, json_option
from marconi_sim.cli.output import print_json

if TYPE_CHECKING:
    from marconi_sim.trace.compiled.trace import Trace
    from marconi_sim.trace.importing.format import Format, ImportOptions

Command = TypeVar("Command", bound=Callable[..., Any])
TARGETS = ("requests", "mooncake", "artifact")
_DEFAULT_SEED = 0


@click.group("trace")
def trace_command() -> None:
    """Import, build, describe, check and export traces."""


# Field of `ImportOptions` -> what the help says; whole numbers unless they are listed below.
_IMPORT_HELP = {
    "tokenizer": "bytes, mistral-v1, or a file: tokenizer.json or a SentencePiece .model.",
    "keep_observations": "Keep the last N observations of an agent's history, drop older ones.",
    "max_tokens": "End a session before an input longer than N tokens.",
    "max_turns": "End a session after N requests.",
    "min_rounds": "Leave out sessions with fewer than N requests.",
    "first_sessions": "Take the first N sessions, in order of their names.",
    "block_size": "Tokens per block of a trace of block hashes.",
    "shared_heads": "Give sessions with equally long tool and system prompts a common head"
    " (format weka; on by default).",
}


def _import_options(command: Command) -> Command:
    """Add one option for every field of `ImportOptions`."""
    for name, text in reversed(_IMPORT_HELP.items()):
        flag = "--" + name.replace("_", "-")
        if name == "shared_heads":
            option = click.option(f"{flag}/--no-shared-heads", default=None, help=text)
        elif name == "tokenizer":
            option = click.option(flag, metavar="NAME", help=text)
        else:
            option = click.option(flag, type=int, metavar="N", help=text)
        command = option(command)
    return command


def _chosen_format(source: Path, name: str | None, options: ImportOptions) -> Format:
    from marconi_sim.trace.importing.formats import detect_format, format_named

    return format_named(detect_format(source).name if name is None else name, options)


def _compile(source: Path, chosen: Format, options: ImportOptions) -> Trace:
    from marconi_sim.trace.importing.compile_source import compile_source, import_trace
    from marconi_sim.trace.importing.readers import lmsys

    if chosen.name == lmsys.FORMAT.name and lmsys.is_hub_name(source):
        known = {"source_file": f"hub:{source.as_posix()}"}
        return compile_source(source, chosen, options, known)
    return import_trace(source, chosen, options, {})


def _report(made: Trace, path: Path) -> None:
    """Say on stderr what was written, and what its reader must know."""
    from marconi_sim.base.units import counted

    click.echo(
        f"{path}: {counted(made.requests, 'request')} in"
        f" {counted(len(made.session_names), 'session')},"
        f" {int(made.input_tokens.sum(dtype='int64')):,} input tokens, {made.parent.size:,} nodes",
        err=True,
    )
    apart = {"source_file", "source_sha256", "format", "options", "title", "caveats", "source"}
    apart |= {"licence", "synthetic", "parameters"}
    for name, value in made.provenance.items():
        if name not in apart:
            click.echo(f"  {name.replace('_', ' ')}: {value}", err=True)


@trace_command.command("import")
@click.argument("source", metavar="SOURCE")
@click.option("--format", "format_name", metavar="FORMAT", help="Guessed from SOURCE if left out.")
@click.option("-o", "--out", required=True, type=Path, metavar="FILE.parquet")
@_import_options
def import_command(source: str, format_name: str | None, out: Path, **given: Any) -> None:
    """Turn SOURCE into a compiled trace.

    SOURCE is a file, a directory, or (format lmsys) the name of a data set on the hub.
    """
    from marconi_sim.base.files import check_different, check_writable
    from marconi_sim.trace.compiled.trace import save
    from marconi_sim.trace.importing.format import ImportOptions

    if source == "":
        raise UsageError("SOURCE '': is empty; give a file, a directory, or a data set on the hub")
    _check_compiled_name(out)
    check_writable(out)
    check_different(Path(source), out)
    options = ImportOptions(**{field.name: given[field.name] for field in fields(ImportOptions)})
    made = _compile(Path(source), _chosen_format(Path(source), format_name, options), options)
    save(made, out)
    _report(made, out)


def _check_compiled_name(out: Path) -> None:
    if out.suffix != ".parquet":
        raise UsageError(f"{out}: a compiled trace is a Parquet file; give a name with .parquet")


@trace_command.command("build")
@click.argument("name")
@click.option(
    "--source", required=True, type=Path, metavar="FILE", help="The source that the recipe names."
)
@click.option("--tokenizer", metavar="FILE", help="The tokenizer's file, if the recipe names one.")
@click.option(
    "-o", "--out", type=Path, metavar="FILE.parquet", help="By default where the recipe says."
)
@catalogue_option
def build_command(
    name: str, source: Path, tokenizer: str | None, out: Path | None, search: tuple[str, ...]
) -> None:
    """Make the trace of the recipe NAME again from its source."""
    from marconi_sim.base import catalogue
    from marconi_sim.base.files import check_writable
    from marconi_sim.trace.compiled import trace as compiled
    from marconi_sim.trace.rebuild import build_trace
    from marconi_sim.trace.recipe import load_recipe

    path = catalogue.find("traces", name, search)
    if path.suffix != ".toml":
        raise UsageError(f"{path}: not a recipe; 'marconi-sim trace import' reads other files")
    recipe = load_recipe(path)
    target = recipe.data if out is None else out
    _check_compiled_name(target)
    check_writable(target)
    made = build_trace(recipe, source, tokenizer)
    before = compiled.load(recipe.data).sha256 if recipe.data.exists() else None
    compiled.save(made, target)
    _report(made, target)
    if before is not None:
        same = "the same as" if made.sha256 == before else "DIFFERENT from"
        click.echo(f"  {same} the trace that was at {recipe.data}", err=True)


@trace_command.command("info")
@click.argument("name")
@click.option(
    "--plot", type=Path, metavar="FILE", help="Draw the lengths into a .png, .pdf or .svg file."
)
@catalogue_option
@json_option
def info_command(name: str, plot: Path | None, search: tuple[str, ...], as_json: bool) -> None:
    """Describe the trace NAME: a name in the catalogue, or a file."""
    from marconi_sim.trace.description.describe import describe, print_description
    from marconi_sim.trace.description.plot import check_plot_path, plot_lengths
    from marconi_sim.trace.load import load_trace

    if plot is not None:
        check_plot_path(plot)
    workload = load_trace(name, search=search)
    description = describe(workload)
    if plot is not None:
        plot_lengths(workload, description, plot)
        click.echo(f"{plot}: written", err=True)
    if as_json:
        print_json(description.as_dict())
    else:
        from rich.console import Console

        print_description(description, Console(file=sys.stdout))


@trace_command.command("check")
@click.argument("name")
@catalogue_option
def check_command(name: str, search: tuple[str, ...]) -> None:
    """Check everything that a simulation relies on in the trace NAME, a name or a file."""
    from marconi_sim.base.errors import UserError
    from marconi_sim.base.units import counted
    from marconi_sim.trace.load import load_trace

    workload = load_trace(name, search=search)
    if workload.recipe is not None:
        stated, made = workload.recipe.synthetic, workload.trace.provenance.get("synthetic", False)
        if stated != made:
            raise UserError(
                f"{workload.recipe.path}: synthetic = {str(stated).lower()}, but the trace itself"
                f" says {str(made).lower()}; correct the recipe or build the trace again"
            )
    click.echo(
        f"{workload.name}: ok, {counted(workload.requests, 'request')} in"
        f" {counted(workload.sessions, 'session')},"
        f" {workload.trace.parent.size:,} nodes, sha256 {workload.trace.sha256[:12]}"
    )


@trace_command.command("export")
@click.argument("name")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="|".join(TARGETS),
    help="A table of requests (.csv, .parquet), Mooncake's block hashes (JSONL), or the token ids"
    " of the published code (JSONL).",
)
@click.option("-o", "--out", required=True, type=Path, metavar="FILE", help=".gz compresses JSONL.")
@click.option("--sessions", type=int, metavar="N", help="Only the first N sessions.")
@click.option("--block-size", type=int, metavar="N", help="mooncake: tokens per block [512].")
@click.option("--seed", type=int, metavar="N", help="artifact: seed of the invented ids [0].")
@catalogue_option
def export_command(
    name: str,
    target: str,
    out: Path,
    sessions: int | None,
    block_size: int | None,
    seed: int | None,
    search: tuple[str, ...],
) -> None:
    """Write the trace NAME, a name or a file, for other tools."""
    from marconi_sim.base.errors import did_you_mean
    from marconi_sim.base.files import check_different
    from marconi_sim.trace.export import write as export
    from marconi_sim.trace.importing.readers.mooncake import DEFAULT_BLOCK
    from marconi_sim.trace.load import load_trace

    if target not in TARGETS:
        raise UsageError(f"--to {target}: unknown{did_you_mean(target, TARGETS)}")
    for option, value, meant in (
        ("--block-size", block_size, "mooncake"),
        ("--seed", seed, "artifact"),
    ):
        if value is not None and target != meant:
            raise UsageError(f"{option} {value}: means nothing with --to {target}, only {meant}")
    check_different(Path(name), out)
    workload = load_trace(name, sessions=sessions, search=search)
    if target == "requests":
        export.export_requests(workload, out)
    elif target == "mooncake":
        block = DEFAULT_BLOCK if block_size is None else block_size
        export.export_mooncake(workload, out, block)
        notice(f"{out}: sharing inside blocks of {block} tokens, outputs and sessions are lost")
    else:
        export.export_artifact(workload, out, _DEFAULT_SEED if seed is None else seed)
        notice(f"{out}: its token ids are invented; they agree exactly where the trace's did")
    click.echo(f"{out}: {workload.requests:,} requests", err=True)
