"""`marconi-sim list` and `marconi-sim show`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from marconi_sim.base.errors import UserError, one_line
from marconi_sim.cli.options import catalogue_option, chosen_model, json_option, model_option
from marconi_sim.cli.output import policies_at_work, print_json

KINDS = ("traces", "policies", "models", "experiments", "formats")


def _trace(path: Path) -> dict[str, Any]:
    from marconi_sim.trace.recipe import load_recipe

    if path.suffix != ".toml":
        return {"what": "compiled trace without a recipe"}
    recipe = load_recipe(path)
    said = not recipe.synthetic or "SYNTHETIC" in recipe.title
    return {"what": recipe.title if said else f"SYNTHETIC: {recipe.title}"}


def _policy(path: Path) -> dict[str, Any]:
    from marconi_sim.policy.load import load_policy

    return {"what": load_policy(path).summary()}


def _model(path: Path) -> dict[str, Any]:
    from marconi_sim.cli.model import summary
    from marconi_sim.model import load_model

    return summary(load_model(path))


def _experiment(path: Path) -> dict[str, Any]:
    from marconi_sim.figures.spec import figures_of
    from marconi_sim.sweeps.experiment import load_experiment

    experiment = load_experiment(path)
    figures_of(experiment)
    return {"what": experiment.title}


_FACTS = {
    "traces": _trace,
    "policies": _policy,
    "models": _model,
    "experiments": _experiment,
}


def _files(kind: str, search: tuple[str, ...]) -> dict[str, Path]:
    """Return name -> file of what there is of a kind."""
    if kind == "models":
        from marconi_sim.model import models

        return models()
    from marconi_sim.base import catalogue

    return catalogue.entries(kind, search)


def _rows(kind: str, search: tuple[str, ...]) -> tuple[list[dict[str, Any]], list[UserError]]:
    """Return a row for each entry of a kind, and what is wrong with the files that give none."""
    if kind == "formats":
        from marconi_sim.trace.importing.formats import formats

        return [{"name": k, "what": f.summary, "file": None} for k, f in formats().items()], []
    rows, wrong = [], []
    for name, path in _files(kind, search).items():
        try:
            rows.append({"name": name, **_FACTS[kind](path), "file": str(path)})
        except UserError as error:
            wrong.append(error)
    return rows, wrong


@click.command("list")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@catalogue_option
@json_option
def list_command(kind: str | None, search: tuple[str, ...], as_json: bool) -> int:
    """List the traces, policies, models, experiments and formats there are, or one KIND of them.

    A file that cannot be read is left out and named on stderr; the exit status is then 1.
    """
    found, wrong = {}, []
    with policies_at_work():
        for one in (kind,) if kind else KINDS:
            found[one], complaints = _rows(one, search)
            wrong += complaints
    if as_json:
        print_json(found)
    else:
        _print_lists(found)
    for error in wrong:
        click.echo(f"error: {one_line(error)}", err=True)
    return 1 if wrong else 0


def _print_lists(found: dict[str, list[dict[str, Any]]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for one, rows in found.items():
        table = Table(
            box=box.SIMPLE_HEAD, padding=(0, 1), title=one, title_justify="left", title_style="bold"
        )
        table.add_column("name", no_wrap=True)
        if one == "models":
            table.add_column("a state costs,\ntokens of KV", justify="right")
        table.add_column("what")
        for row in rows:
            costs = [f"{row['tokens_per_state'] or 0:,.0f}"] if one == "models" else []
            table.add_row(row["name"], *costs, row["what"])
        console.print(table)


@click.group("show")
def show_command() -> None:
    """Show what a policy, a model, an experiment or a trace is."""


def _print_facts(title: str, facts: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"[bold]{title}[/]")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for key, value in facts.items():
        table.add_row(key, value)
    console.print(table)


@show_command.command("policy")
@click.argument("name")
@catalogue_option
@json_option
def show_policy(name: str, search: tuple[str, ...], as_json: bool) -> None:
    """Show what a policy (a name or a file) declares, and its parameters."""
    import inspect

    from marconi_sim.base.catalogue import origin
    from marconi_sim.policy.load import load_policy

    with policies_at_work():
        policy = load_policy(name, search)
        rules = policy.rules()
    parameters = {
        key: {"default": p.default, "allowed": p.allowed, "unit": p.unit, "help": p.help}
        for key, p in policy.parameters().items()
    }
    if as_json:
        facts = {"name": policy.name, "file": str(policy.path), "rules": rules}
        print_json({**facts, "parameters": parameters})
        return
    click.echo(inspect.getdoc(policy))
    click.echo()
    _print_facts(policy.name, {**rules, "file": origin(policy.path) if policy.path else "none"})
    if parameters:
        click.echo()
        _print_facts(
            "parameters",
            {
                f"{key}={p['default']}": f"{p['help']}\n{p['allowed']}"
                + (f", in {p['unit']}" if p["unit"] else "")
                for key, p in parameters.items()
            },
        )


@show_command.command("model")
@click.argument("name")
@model_option
@json_option
def show_model(name: str, model_texts: tuple[str, ...], as_json: bool) -> None:
    """Show what a model (a name or a file) costs: bytes of KV and state, FLOPs by kind of layer.

    \b
      marconi-sim show model qwen3.5-27b --model-option kv_dtype=fp8 --model-option tensor_parallel=2
      marconi-sim show model ./config.json
    """
    from marconi_sim.cli.model import model_facts, print_model

    model = chosen_model(name, model_texts)
    if as_json:
        print_json(model_facts(model))
    else:
        print_model(model)


@show_command.command("experiment")
@click.argument("name")
@catalogue_option
@json_option
@click.pass_context
def show_experiment(ctx: click.Context, name: str, search: tuple[str, ...], as_json: bool) -> None:
    """Show what an experiment runs: the same as `marconi-sim sweep --dry-run`."""
    from marconi_sim.cli.sweep import sweep_command

    ctx.invoke(sweep_command, experiment=name, search=search, dry_run=True, as_json=as_json)


@show_command.command("trace")
@click.argument("name")
@catalogue_option
@json_option
@click.pass_context
def show_trace(ctx: click.Context, name: str, search: tuple[str, ...], as_json: bool) -> None:
    """Show what a trace is: the same as `marconi-sim trace info`."""
    from marconi_sim.cli.trace import info_command

    ctx.invoke(info_command, name=name, plot=None, search=search, as_json=as_json)
