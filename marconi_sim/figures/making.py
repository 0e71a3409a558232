"""From names to images: run what a figure needs, then draw it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from marconi_sim.base import catalogue
from marconi_sim.base.columns import TTFT
from marconi_sim.base.errors import UsageError, UserError, did_you_mean
from marconi_sim.base.files import check_folder
from marconi_sim.figures import (
    bars,
    blocks,
    box,
    cdf,
    course,
    distribution,
    formulas,
    lengths,
    lines,
)
from marconi_sim.figures.foot import foot_of_models, foot_of_sweep, foot_of_traces
from marconi_sim.figures.page import page
from marconi_sim.figures.rows import Rows, shown_rows
from marconi_sim.figures.spec import FIGURE_KINDS, Figure, figures_of
from marconi_sim.model import Model, load_model, vary
from marconi_sim.sweeps.experiment import Experiment, load_experiment
from marconi_sim.sweeps.plan import make_plan
from marconi_sim.sweeps.run import default_requests_dir, run_plan
from marconi_sim.trace.load import Workload, load_trace

_OF_RUNS = {
    "box": box.draw,
    "lines": lines.draw,
    "bars": bars.draw,
    "cdf": cdf.draw,
    "lengths": lengths.draw,
    "course": course.draw,
}
_OF_MODELS = {
    "sequence-bytes": formulas.draw_sequence_bytes,
    "efficiency": formulas.draw_efficiency,
    "flops": formulas.draw_flops,
}
DATA = "data"


class Wanted(NamedTuple):
    """An experiment and those of its figures that are to be drawn."""

    experiment: Experiment
    figures: tuple[Figure, ...]


class Made(NamedTuple):
    """A drawn figure and its files."""

    experiment: str
    name: str
    files: list[Path]


def wanted_figures(names: Iterable[str], search: Iterable[str | Path] = ()) -> list[Wanted]:
    """Return what names mean: experiments, their files, or single figures; no name: every figure in the catalogue.

    Raises:
        UsageError: an unknown name, or an experiment without figures.
    """
    search = tuple(search)
    loaded = [
        load_experiment(path, search) for path in catalogue.entries("experiments", search).values()
    ]
    known = [Wanted(one, figures_of(one)) for one in loaded]
    if not (names := tuple(names)):
        return [one for one in known if one.figures]
    chosen: dict[Path, dict[str, Figure]] = {}
    experiments = {one.path: one for one in loaded}
    for name in names:
        if catalogue.is_path(name) or name in [one.name for one in loaded]:
            experiment = load_experiment(name, search)
            figures = figures_of(experiment)
            if not figures:
                raise UsageError(f"experiment '{name}': has no [[figures]]")
            experiments[experiment.path] = experiment
        else:
            found = [(one.experiment, f) for one in known for f in one.figures if f.name == name]
            if not found:
                every = [f.name for one in known for f in one.figures] + [e.name for e in loaded]
                raise UsageError(f"figure '{name}': unknown{did_you_mean(name, set(every))}")
            experiment, figures = found[0][0], (found[0][1],)
        chosen.setdefault(experiment.path, {}).update({f.name: f for f in figures})
    return [Wanted(experiments[path], tuple(figures.values())) for path, figures in chosen.items()]


def run_experiment(
    experiment: Experiment, folder: Path, jobs: int | None, search: Iterable[str | Path]
) -> Rows:
    """Return the rows of an experiment, running what is not in FOLDER/data yet."""
    data = folder / DATA
    data.mkdir(parents=True, exist_ok=True)
    out = data / f"{experiment.name}.parquet"
    requests_dir = default_requests_dir(out) if experiment.requests else None
    plan = make_plan(experiment, search)
    swept = run_plan(plan, out=out, jobs=jobs, requests_dir=requests_dir)
    return Rows.of(swept, plan, requests_dir)


def models_of(experiment: Experiment) -> list[Model]:
    """Return the models of an experiment."""
    return [
        vary(load_model(grid.name), one)
        for grid in experiment.models
        for one in grid.combinations()
    ]


def workloads_of(experiment: Experiment, search: tuple[str | Path, ...]) -> list[Workload]:
    """Return the workloads of an experiment."""
    return [
        load_trace(grid.name, **{k: v for k, v in one.items() if k != "capacity"}, search=search)
        for grid in experiment.traces
        for one in grid.combinations()
    ]


def _file(experiment: Experiment) -> str:
    """Return what a reader can look for: no path of this machine."""
    return f"experiments/{experiment.path.name}"


def _title(experiment: Experiment, figure: Figure) -> str:
    return figure.title or experiment.title


def _draw_of_traces(
    experiment: Experiment, figure: Figure, folder: Path, search: tuple[str | Path, ...]
) -> list[Path]:
    workloads = workloads_of(experiment, search)
    foot = [distribution.NOTE, *foot_of_traces(workloads, _file(experiment))]
    with page(_title(experiment, figure), foot, len(workloads)) as made:
        distribution.draw(made, workloads)
        return made.write(folder, figure.name)


def _draw_of_models(experiment: Experiment, figure: Figure, folder: Path) -> list[Path]:
    models = models_of(experiment)
    foot = foot_of_models(models, _file(experiment))
    panels = len(models) if figure.kind == "flops" else 1
    with page(_title(experiment, figure), foot, panels) as made:
        _OF_MODELS[figure.kind](made, models)
        return made.write(folder, figure.name)


def draw_of_runs(rows: Rows, figure: Figure, folder: Path) -> list[Path]:
    """Draw a figure of a sweep's runs or of their requests; return the files.

    Raises:
        UserError: the rows do not fit the figure, or a file cannot be written.
    """
    experiment = rows.experiment
    frame = rows.frame if figure.kind == "blocks" else shown_rows(rows, figure)
    if figure.x and figure.x not in frame:
        raise UserError(f"{experiment.path}: x = '{figure.x}': no run has it")
    latency = figure.latency if figure.y == TTFT else None
    foot = foot_of_sweep(frame, rows.facts, _file(experiment), latency)
    if figure.kind == "box":
        foot.insert(0, box.NOTE)
    if figure.kind == "lengths":
        foot.insert(0, lengths.NOTE)
    of_traces = figure.kind in ("lines", "blocks")
    panels = frame.trace.nunique() if of_traces else 1
    with page(
        _title(experiment, figure),
        foot,
        panels,
        share_y=not figure.over,
        wide=figure.kind in ("box", "bars"),
    ) as made:
        if figure.kind == "blocks":
            blocks.draw(made, rows)
        else:
            _OF_RUNS[figure.kind](made, rows, figure)
        return made.write(folder, figure.name)


def make_figures(
    wanted: Iterable[Wanted],
    folder: Path,
    jobs: int | None = None,
    search: Iterable[str | Path] = (),
) -> Iterator[Made]:
    """Draw figures into a folder, the sweeps they need into FOLDER/data; yield each when its files are there.

    Finished runs in FOLDER/data are kept, so that only what changed is run again.

    Raises:
        UserError: a sweep fails, or a file cannot be used.
    """
    search = tuple(search)
    check_folder(folder)
    folder.mkdir(exist_ok=True)
    for experiment, figures in wanted:
        rows = None
        for figure in figures:
            of = FIGURE_KINDS[figure.kind].of
            if of == "traces":
                files = _draw_of_traces(experiment, figure, folder, search)
            elif of == "models":
                files = _draw_of_models(experiment, figure, folder)
            else:
                rows = rows or run_experiment(experiment, folder, jobs, search)
                files = draw_of_runs(rows, figure, folder)
            yield Made(experiment.name, figure.name, files)
