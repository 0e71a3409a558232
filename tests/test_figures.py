"""Figures: every kind draws, files appear whole and with the same bytes, and say where their numbers come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import naive
import numpy as np
import orjson
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support import workload

from marconi_sim import __version__
from marconi_sim.base import catalogue
from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.cli import cli
from marconi_sim.figures.blocks import count_reuse
from marconi_sim.figures.course import SLICES, rates_by_slice
from marconi_sim.figures.foot import foot_of_models, foot_of_sweep, foot_of_traces
from marconi_sim.figures.formulas import efficiency, sequence_bytes
from marconi_sim.figures.lengths import bin_width, means_by_length
from marconi_sim.figures.making import (
    Wanted,
    draw_of_runs,
    make_figures,
    run_experiment,
    wanted_figures,
    workloads_of,
)
from marconi_sim.figures.page import page
from marconi_sim.figures.rows import Rows, rows_of
from marconi_sim.figures.spec import FIGURE_KINDS, figures_of
from marconi_sim.figures.style import looks
from marconi_sim.latency.table import load_latency
from marconi_sim.model import load_model
from marconi_sim.sweeps.experiment import Experiment, load_experiment

TEXT = """
title = "Small"
description = "For tests."
requests = true

[[traces]]
trace = "lmsys"
sessions = 6
sessions_per_second = 1
capacity = ["1GB", "3GB"]

[[policies]]
policy = "vllm+"

[[policies]]
policy = "sglang+"

[[policies]]
policy = "marconi"
label = "static alpha"
best = "best static alpha"
params.alpha = [0.0, 1.0]

[[figures]]
name = "box"
kind = "box"
x = "trace"
y = "ttft"
percentile = 95
series = ["sglang+", "best static alpha"]
over = "vllm+"

[[figures]]
name = "lines"
kind = "lines"
x = "capacity_bytes"
y = "token_hit_rate"
series = ["sglang+", "best static alpha"]
over = "vllm+"
relation = "times"

[[figures]]
name = "bars"
kind = "bars"
x = "capacity"
y = "token_hit_rate"
series = ["vllm+", "sglang+"]
"""
ONE = """
title = "One configuration"
description = "For tests."
requests = true

[[traces]]
trace = "sharegpt"
sessions = 12
capacity = "1GB"

[[policies]]
policy = "sglang+"

[[policies]]
policy = "marconi"

[[figures]]
name = "cdf"
kind = "cdf"
y = "ttft"
latency = "interpolated"

[[figures]]
name = "lengths"
kind = "lengths"
y = "token_hit_rate"
series = ["marconi"]
over = "sglang+"
relation = "difference"

[[figures]]
name = "course"
kind = "course"
y = "token_hit_rate"
"""


def saved(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    folder = tmp_path_factory.mktemp("small")
    return run_experiment(load_experiment(saved(folder, "small", TEXT)), folder, 1, ())


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    folder = tmp_path_factory.mktemp("one")
    return run_experiment(load_experiment(saved(folder, "one", ONE)), folder, 1, ())


def shrunk(experiment: Experiment) -> Experiment:
    """Return the experiment with few sessions and one configuration per trace and model."""
    shown = {figure.capacity for figure in figures_of(experiment)}
    traces = tuple(
        dataclasses.replace(
            grid,
            values={
                key: tuple(v for v in values if v in shown or v == values[-1])
                for key, values in grid.values.items()
            }
            | {"sessions": (4,)},
        )
        for grid in experiment.traces
    )
    return dataclasses.replace(experiment, traces=traces)


@pytest.mark.parametrize("name", catalogue.entries("experiments"))
def test_every_figure_of_every_shipped_experiment_is_drawn(name: str, tmp_path: Path) -> None:
    experiment = shrunk(load_experiment(name))
    made = list(make_figures([Wanted(experiment, figures_of(experiment))], tmp_path, 1))
    assert [one.name for one in made] == [figure.name for figure in figures_of(experiment)]
    for one in made:
        pdf, png = (path.read_bytes() for path in one.files)
        assert pdf.startswith(b"%PDF")
        assert pdf.rstrip().endswith(b"%%EOF")
        assert png.startswith(b"\x89PNG")
        assert b"IEND" in png[-12:]
        assert 5_000 < len(png) < 150_000


def test_the_paper_has_all_its_figures() -> None:
    names = {figure.name for wanted in wanted_figures(()) for figure in wanted.figures}
    assert {
        "fig03a", "fig03b", "fig05", "fig06", "fig07", "fig08", "fig09", "fig10a", "fig10b", "fig11", "fig12a",
        "fig12b", "fig13a", "fig13b", "fig14",
    } <= names  # fmt: skip


def test_every_kind_is_drawn_by_a_test() -> None:
    shipped = {f.kind for wanted in wanted_figures(()) for f in wanted.figures}
    assert set(FIGURE_KINDS) == shipped


def images(rows: Rows, folder: Path) -> Iterator[bytes]:
    folder.mkdir()
    for figure in figures_of(rows.experiment)[:1]:
        for path in draw_of_runs(rows, figure, folder):
            yield path.read_bytes()


@pytest.mark.parametrize("which", ["small", "one"])
def test_the_same_rows_give_the_same_bytes_without_a_time(
    which: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rows = request.getfixturevalue(which)
    first, second = (list(images(rows, tmp_path / name)) for name in ("a", "b"))
    assert first == second
    assert not any(b"CreationDate" in image or b"tIME" in image for image in first)
    assert {path.suffix for path in (tmp_path / "a").iterdir()} == {".pdf", ".png"}


def test_a_users_own_style_does_not_leak_in(one: Rows, tmp_path: Path) -> None:
    import matplotlib as mpl

    before = list(images(one, tmp_path / "a"))
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        assert list(images(one, tmp_path / "b")) == before


def test_an_image_is_whole_or_not_there(
    one: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    def fail(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("in the middle")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(RuntimeError):
        draw_of_runs(one, figures_of(one.experiment)[0], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_foot_of_a_sweep_names_data_configuration_and_version(small: Rows) -> None:
    foot = " ".join(foot_of_sweep(small.frame, small.facts, "experiments/small.toml", "linear"))
    for text in (
        "lmsys (SYNTHETIC, ", "of 6 sessions", "hybrid-7b", "1GB, 3GB", "sessions per second 1", "Jamba-1.5-Mini",
        f"marconi-sim {__version__}", "experiments/small.toml", small.frame.trace_sha256[0][:8],
    ):  # fmt: skip
        assert text in foot


def test_settings_that_differ_between_traces_are_told_apart(small: Rows, one: Rows) -> None:
    both = pd.concat([small.frame, one.frame])
    foot = " ".join(foot_of_sweep(both, small.facts, "x", None))
    assert "cache 1GB, 3GB (lmsys); cache 1GB (sharegpt)" in foot


def test_real_data_is_not_called_synthetic_and_names_its_source(one: Rows) -> None:
    foot = " ".join(foot_of_sweep(one.frame, one.facts, "x", None))
    assert "SYNTHETIC" not in foot
    assert "Marugannwg/ShareGPT92k" in foot


def test_a_figure_of_one_capacity(small: Rows, tmp_path: Path) -> None:
    figure = dataclasses.replace(figures_of(small.experiment)[1], capacity="3GB")
    assert set(rows_of(small, figure).capacity) == {"3GB"}
    assert len(rows_of(small, figure)) * 2 == len(rows_of(small, figures_of(small.experiment)[1]))
    assert draw_of_runs(small, figure, tmp_path)
    absent = dataclasses.replace(figure, capacity="2GB")
    with pytest.raises(UserError, match=r"capacity = '2GB': no run has it; there are 1GB, 3GB"):
        draw_of_runs(small, absent, tmp_path)


def test_the_foot_says_what_a_state_costs_where_accountings_differ(tmp_path: Path) -> None:
    models = '[[models]]\nmodel = "hybrid-7b"\n\n[[models]]\nmodel = "qwen3.5-4b"\nkv_dtype = ["bfloat16", "fp8"]\n'
    text = TEXT.replace("[[policies]]", f"{models}\n[[policies]]", 1)
    rows = run_experiment(load_experiment(saved(tmp_path, "two", text)), tmp_path, 1, ())
    foot = " ".join(foot_of_sweep(rows.frame, rows.facts, "experiments/two.toml", None))
    assert "hybrid-7b 409, qwen3.5-4b 1,572, qwen3.5-4b[kv_dtype=fp8] 3,144" in foot
    assert "(accounting: paper, exact)" in foot
    assert set(rows.frame.tokens_per_state.round()) == {409, 1572, 3144}


def test_exact_formulas_say_so() -> None:
    foot = " ".join(foot_of_models([load_model("qwen3.5-4b"), load_model("llama-3.1-8b")], "x"))
    assert "Formulas of the exact accounting" in foot
    assert "D = 2560, N = 128, 32.77 KB of KV per token" in foot
    assert "N = None" not in foot


def test_the_foot_of_traces_names_each() -> None:
    (wanted,) = wanted_figures(("fig06",))
    foot = " ".join(foot_of_traces(workloads_of(wanted.experiment, ()), "experiments/fig06.toml"))
    assert "lmsys (SYNTHETIC, " in foot
    assert "swebench (SWE-agent" in foot
    assert "100 sessions" in foot


def test_formulas_say_so() -> None:
    foot = " ".join(foot_of_models([load_model("hybrid-7b")], "experiments/fig05.toml"))
    assert "Table 1" in foot
    assert "no trace" in foot
    assert "4 attention, 24 SSM and 28 MLP layers" in foot


def test_the_foot_is_on_the_page() -> None:
    with page("A title", ["where it comes from"]) as made:
        made.panels[0].plot([0, 1], [0, 1], label="a")
        made.legend()
        texts = [
            text.get_text() for text in made.canvas.findobj(match=lambda x: hasattr(x, "get_text"))
        ]
    assert "where it comes from" in texts
    assert "A title" in texts


def test_looks_differ_in_colour_and_in_something_else() -> None:
    labels = ["vllm+", "sglang+", "marconi", "best static alpha", "alpha 0", "mine", "yours"]
    found = looks(labels)
    assert found["marconi"] == looks(["marconi"])["marconi"]
    assert len({look.colour for look in list(found.values())[:5]}) == 5
    assert len({(look.marker, look.line) for look in found.values()}) == len(labels)


def test_values_are_relative_to_the_same_configuration(small: Rows) -> None:
    figure = next(f for f in figures_of(small.experiment) if f.name == "lines")
    found = rows_of(small, figure)
    assert set(found.label) == {"sglang+", "best static alpha"}
    rates = small.frame.set_index(["configuration", "label"]).token_hit_rate
    for row in found.itertuples():
        base = rates[row.configuration, "vllm+"]
        assert row.value == pytest.approx(row.token_hit_rate / base)


def test_percentiles_of_times_are_those_of_the_tokens_left(small: Rows) -> None:
    figure = next(f for f in figures_of(small.experiment) if f.name == "box")
    found = rows_of(small, dataclasses.replace(figure, over="", series=("sglang+",)))
    row = found.iloc[0]
    requests = small.requests(row.run, "input_tokens", "reused_tokens")
    left = (requests.input_tokens - requests.reused_tokens).to_numpy()
    assert row.value == pytest.approx(np.percentile(load_latency().seconds_of(left), 95))


def test_slices_weigh_up_to_the_whole(one: Rows) -> None:
    figure = next(f for f in figures_of(one.experiment) if f.name == "course")
    rates = rates_by_slice(one, figure, "sglang+")
    run = one.frame.run[one.frame.label == "sglang+"].iloc[0]
    requests = one.requests(run, "input_tokens", "reused_tokens")
    ends = np.arange(1, SLICES + 1) * len(requests) // SLICES
    inputs = np.diff(requests.input_tokens.cumsum().to_numpy()[ends - 1], prepend=0)
    assert (rates * inputs).sum() == pytest.approx(requests.reused_tokens.sum())


def test_means_by_length_are_means_of_rates(one: Rows) -> None:
    figure = next(f for f in figures_of(one.experiment) if f.name == "lengths")
    means = means_by_length(one, figure, "marconi")
    run = one.frame.run[one.frame.label == "marconi"].iloc[0]
    requests = one.requests(run, "input_tokens", "reused_tokens")
    width = bin_width(requests.input_tokens.to_numpy())
    start = means.index[0]
    inside = requests[(requests.input_tokens >= start) & (requests.input_tokens < start + width)]
    assert means.iloc[0] == pytest.approx((inside.reused_tokens / inside.input_tokens).mean())


def test_one_sequence_takes_what_the_paper_says() -> None:
    hybrid, transformer = load_model("hybrid-7b"), load_model("transformer-7b")
    size = sequence_bytes(hybrid, 10_000, 16)
    assert round(size / 1e9, 1) == 17.4
    assert round(size / sequence_bytes(transformer, 10_000, None), 1) == 3.3
    assert efficiency(hybrid, 10_000) > 3 * efficiency(transformer, 10_000)


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=6), st.sampled_from([1, 2, 3]))
def test_reused_blocks_are_those_that_a_dictionary_of_blocks_finds(
    sequences: list[tuple[list[int], list[int]]], block: int
) -> None:
    requests = [
        naive.Request(session=i, turn=0, arrival=float(i), input=tuple(a), output=tuple(b))
        for i, (a, b) in enumerate(sequences)
    ]
    stored: set[tuple[int, ...]] = set()
    kv: set[tuple[int, ...]] = set()
    states: set[tuple[int, ...]] = set()
    reused = []
    for one in requests:
        prefixes = [one.input[: n * block] for n in range(1, len(one.input) // block + 1)]
        hits = [prefix for prefix in prefixes if prefix in stored]
        kv |= set(hits)
        states |= set(hits[-1:])
        reused.append(len(hits[-1]) if hits else 0)
        whole = one.input + one.output
        stored |= {whole[: n * block] for n in range(1, len(whole) // block + 1)}
    found = count_reuse(workload(requests), block, np.array(reused, np.int64))
    assert found == (len(stored), len(kv), len(states))


def test_names_are_experiments_files_or_single_figures(tmp_path: Path) -> None:
    both, single = wanted_figures(("fig10",)), wanted_figures(("fig10a",))
    assert [f.name for f in both[0].figures] == ["fig10a", "fig10b"]
    assert [f.name for f in single[0].figures] == ["fig10a"]
    mine = wanted_figures((str(saved(tmp_path, "mine", ONE)),))
    assert [f.name for f in mine[0].figures] == ["cdf", "lengths", "course"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fig10c", r"figure 'fig10c': unknown; did you mean 'fig10"),
        ("paper", r"experiment 'paper': has no \[\[figures\]\]"),
    ],
)
def test_an_unknown_figure_is_told(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wanted_figures((name,))


def test_a_sweep_without_runs_says_what_to_do() -> None:
    result = CliRunner().invoke(cli, ["sweep", "fig05"])
    assert isinstance(result.exception, UsageError)
    assert "marconi-sim figures fig05" in str(result.exception)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('y = "ttft"\nlatency', 'y = "evictions"\nlatency', r"y = 'evictions': unknown"),
        ('latency = "interpolated"', 'latency = "cubic"', r"latency = 'cubic': unknown"),
        ('y = "ttft"\nlatency', 'y = "token_hit_rate"\nlatency', r"latency has no effect here"),
        ('latency = "interpolated"', 'over = "sglang+"', r"over has no effect with kind 'cdf'"),
        ('latency = "interpolated"', 'capacity = "1GB"', r"capacity has no effect with kind 'cdf'"),
        ('latency = "interpolated"', 'relation = "times"', r"relation has no effect without"),
        ('relation = "difference"', 'relation = "ratio"', r"relation = 'ratio': unknown"),
        ('kind = "course"\ny = "token_hit_rate"', 'kind = "flops"\ny = "ttft"', r"y has no effect"),
        ('kind = "course"\n', 'kind = "pie"\n', r"kind = 'pie': unknown"),
    ],
)
def test_a_mistake_in_a_figure_names_the_line(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    assert old in ONE
    with pytest.raises(UserError, match=rf"mine.toml:\d+: {message}"):
        figures_of(load_experiment(saved(tmp_path, "mine", ONE.replace(old, new))))


def test_a_figure_of_one_run_refuses_several(small: Rows, one: Rows, tmp_path: Path) -> None:
    figure = dataclasses.replace(figures_of(one.experiment)[0], series=("sglang+",))
    with pytest.raises(UserError, match=r"needs one run of 'sglang\+', there are 2"):
        draw_of_runs(small, figure, tmp_path)


def test_lines_need_numbers(small: Rows, tmp_path: Path) -> None:
    figure = next(f for f in figures_of(small.experiment) if f.name == "lines")
    with pytest.raises(UserError, match="x = 'trace' is not a number"):
        draw_of_runs(small, dataclasses.replace(figure, x="trace"), tmp_path)


def test_a_parameter_that_no_run_has_is_told(small: Rows, tmp_path: Path) -> None:
    figure = dataclasses.replace(figures_of(small.experiment)[1], x="param_gamma")
    with pytest.raises(UserError, match="x = 'param_gamma': no run has it"):
        draw_of_runs(small, figure, tmp_path)


def test_the_folder_may_not_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UserError, match="is a file, expected a folder"):
        list(make_figures(wanted_figures(("fig05",)), file))


def test_the_command_prints_the_files_it_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    result = CliRunner().invoke(cli, ["figures", "fig05", "fig14", "-o", str(folder), "--json"])
    assert result.exit_code == 0
    found = orjson.loads(result.stdout)
    assert [one["figure"] for one in found] == ["fig05", "fig14"]
    assert all(Path(file).is_file() for one in found for file in one["files"])


def test_a_second_call_runs_nothing_again(tmp_path: Path) -> None:
    experiment = load_experiment(saved(tmp_path, "one", ONE))
    run_experiment(experiment, tmp_path, 1, ())
    files = sorted((tmp_path / "data" / "one.requests").iterdir())
    before = [file.stat().st_mtime_ns for file in files]
    run_experiment(experiment, tmp_path, 1, ())
    assert [file.stat().st_mtime_ns for file in files] == before
