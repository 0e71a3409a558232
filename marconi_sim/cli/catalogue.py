"""`marconi-sim list` and `marconi-sim show`."""

from __future__ import annotations

from typing import Any

import click

from marconi_sim.cli.options import catalogue_option, chosen_model, json_option, model_option

KINDS = ("traces", "policies", "models", "experiments", "formats")


def _traces(search: tuple[str, ...]) -> list[dict[str, Any]]:
    from marconi_sim import catalogue
    from marconi_sim.trace.recipe import load_recipe

    rows = []
    for name, path in catalogue.entries("traces", search).items():
        title = "compiled trace without a recipe"
        if path.suffix == ".toml":
            recipe = load_recipe(path)
            title = recipe.title
            if recipe.synthetic and "SYNTHETIC" not in title:
                title = f"SYNTHETIC: {title}"
        rows.append({"name": name, "what": title, "file": str(path)})
    return rows


def _policies(search: tuple[str, ...]) -> list[dict[str, Any]]:
    from marconi_sim import catalogue
    from marconi_sim.policy.load import load_policy

    return [
        {"name": name, "what": load_policy(path).summary(), "file": str(path)}
        for name, path in catalogue.entries("policies", search).items()
    ]


def _models(search: tuple[str, ...]) -> list[dict[str, Any]]:
    from marconi_sim.cli.model import summary
    from marconi_sim.model import load_model, models

    return [
        {"name": name, **summary(load_model(path)), "file": str(path)}
        for name, path in models().items()
    ]


def _experiments(search: tuple[str, ...]) -> list[dict[str, Any]]:
    from marconi_sim import catalogue
    from marconi_sim.experiment import load_experiment

    return [
        {"name": name, "what": load_experiment(path).title, "file": str(path)}
        for name, path in catalogue.entries("experiments", search).items()
    ]


def _formats(search: tuple[str, ...]) -> list[dict[str, Any]]:
    from marconi_sim.trace.formats import formats

    return [{"name": name, "what": one.summary, "file": None} for name, one in formats().items()]


_ROWS = {
    "traces": _traces,
    "policies": _policies,
    "models": _models,
    "experiments": _experiments,
    "formats": _formats,
}


@click.command("list")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@catalogue_option
@json_option
def list_command(kind: str | None, search: tuple[str, ...], as_json: bool) -> None:
    """List the traces, policies, models, experiments and formats there are, or one KIND of them."""
    found = {one: _ROWS[one](search) for one in ((kind,) if kind else KINDS)}
    if as_json:
        import orjson

        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2))
        return
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

    from marconi_sim.catalogue import origin
    from marconi_sim.policy.load import load_policy

    policy = load_policy(name, search)
    parameters = {
        key: {"default": p.default, "allowed": p.allowed, "unit": p.unit, "help": p.help}
        for key, p in policy.parameters().items()
    }
    if as_json:
        import orjson

        facts = {
            "name": policy.name,
            "file": str(policy.path),
            "rules": policy.rules(),
            "parameters": parameters,
        }
        click.echo(orjson.dumps(facts, option=orjson.OPT_INDENT_2))
        return
    click.echo(inspect.getdoc(policy))
    click.echo()
    _print_facts(
        policy.name, {**policy.rules(), "file": origin(policy.path) if policy.path else "none"}
    )
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
        import orjson

        click.echo(orjson.dumps(model_facts(model), option=orjson.OPT_INDENT_2))
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
