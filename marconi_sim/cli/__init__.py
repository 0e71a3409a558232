"""The command line. Commands are loaded when they are called, so that `--help` is fast."""

from __future__ import annotations

import importlib
import os
import sys

import click

from marconi_sim.base.errors import UserError, one_line
from marconi_sim.base.version import __version__

# Command -> (module that defines it under the same name, one line of help).
_COMMANDS = {
    "run": ("marconi_sim.cli.run", "Replay a trace against a cache and print what was reused."),
    "sweep": (
        "marconi_sim.cli.sweep",
        "Run every combination of an experiment and write one row per run.",
    ),
    "figures": (
        "marconi_sim.cli.figures",
        "Draw the figures of experiments, after running what they show.",
    ),
    "paper": ("marconi_sim.cli.paper", "Print every number of the paper beside ours."),
    "trace": ("marconi_sim.cli.trace", "Import, build, describe, check and export traces."),
    "fidelity": (
        "marconi_sim.cli.fidelity",
        "Tell what each departure of the published code from the paper is worth.",
    ),
    "validate-ttft": (
        "marconi_sim.cli.validate",
        "Replay a trace on a real model: predicted and measured TTFT.",
    ),
    "validate-exact": (
        "marconi_sim.cli.validate",
        "Prove on real models that reuse is exact.",
    ),
    "list": (
        "marconi_sim.cli.catalogue",
        "List the traces, policies, models, experiments and formats there are.",
    ),
    "show": (
        "marconi_sim.cli.catalogue",
        "Show what a policy, a model, an experiment or a trace is.",
    ),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="marconi-sim")
def cli() -> None:
    """Simulate prefix caching for hybrid (attention + recurrent) language models.

    A session trace, a model shape, a cache size and a policy go in; token hit rate, FLOPs saved and the reason of every
    missed token come out.

    \b
      marconi-sim run --trace swebench --policy marconi
      marconi-sim list
    """


def main() -> None:
    """Run the command line: every user's mistake is one line on stderr, with exit status 1 or 2."""
    try:
        status = cli.main(prog_name="marconi-sim", standalone_mode=False)
    except UserError as error:
        sys.stderr.write(f"error: {one_line(error)}\n")
        sys.exit(error.exit_status)
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(f"{error.format_message()}\n")
        sys.exit(error.exit_code)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see '{context.command_path} --help'" if context else ""
        sys.stderr.write(f"error: {' '.join(error.format_message().split()).rstrip('.')}{hint}\n")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        # What the operating system refuses: a folder that may not be searched, a full disk behind a cache or stdout.
        sys.stderr.write(f"error: {error.filename or 'output'}: {error.strerror or error}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)
