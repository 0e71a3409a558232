"""Experiments: what a file says, what it expands to, and how its mistakes are told."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from marconi_sim.base import catalogue
from marconi_sim.base.columns import METRICS, SETTINGS
from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.figures.spec import figures_of
from marconi_sim.sweeps.experiment import load_experiment
from marconi_sim.sweeps.plan import Plan, make_plan
from marconi_sim.sweeps.runs import working_set_fraction

TEXT = '''# A comment.
title = "A title"
description = """
Of several lines.
capacity = "not a key"
"""
requests = true

[[traces]]
trace = "sharegpt"
sessions = 20
sessions_per_second = [1, 2.5]
capacity = ["1GB", "0.5wss"]

[[models]]
model = "hybrid-7b"
state_dimension = [16, 128]

[[policies]]
policy = "vllm+"

[[policies]]
policy = "marconi"
label = "static"
best = "best"
params.alpha = [0.0, 1.0]

[[figures]]
kind = "lines"
x = "capacity_bytes"
y = "token_hit_rate"
series = ["best"]
over = "vllm+"
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    return path


def edited(file: Path, old: str, new: str) -> Path:
    assert TEXT.count(old) == 1, "the edit must be unambiguous"
    file.write_text(TEXT.replace(old, new))
    return file


def checked_plan(file: Path) -> Plan:
    """Read everything in an experiment's file, as the command line does."""
    experiment = load_experiment(file)
    figures_of(experiment)
    return make_plan(experiment)


def line_of(file: Path, text: str) -> int:
    lines = file.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_an_experiment_is_read(file: Path) -> None:
    read = load_experiment(file)
    assert (read.name, read.title, read.requests) == ("mine", "A title", True)
    assert [(grid.name, dict(grid.values)) for grid in read.traces] == [
        (
            "sharegpt",
            {"sessions": (20,), "sessions_per_second": (1, 2.5), "capacity": ("1GB", "0.5wss")},
        )
    ]
    assert [(p.name, p.label, p.best, dict(p.values)) for p in read.policies] == [
        ("vllm+", "vllm+", "", {}),
        ("marconi", "static", "best", {"alpha": (0.0, 1.0)}),
    ]
    (figure,) = figures_of(read)
    assert (figure.name, figure.kind, figure.series) == ("mine", "lines", ("best",))
    assert read.labels() == ["vllm+", "static", "best"]


def test_every_combination_is_a_row_in_a_fixed_order(file: Path) -> None:
    plan = make_plan(load_experiment(file))
    told = [
        (
            row.settings["sessions_per_second"], row.settings["state_dimension"],
            row.settings["capacity"], row.settings["label"], row.settings.get("param_alpha"),
        )
        for row in plan.rows
    ]  # fmt: skip
    expected = [
        (rate, dimension, capacity, label, alpha)
        for rate in (1.0, 2.5)
        for dimension in (16, 128)
        for capacity in ("1GB", "0.5wss")
        for label, alpha in (("vllm+", None), ("static", 0.0), ("static", 1.0))
    ]
    assert told == expected
    assert len({row.run.key for row in plan.rows}) == len(plan.rows) == len(plan.runs)
    assert [row.run.key for row in make_plan(load_experiment(file)).rows] == [
        row.run.key for row in plan.rows
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sessions = 20", "sessions = 21"),
        ("[1, 2.5]", "[1.5, 2.5]"),
        ("state_dimension = [16, 128]", "state_dimension = [17, 129]"),
        ('["1GB", "0.5wss"]', '["1.1GB", "0.6wss"]'),
    ],
)
def test_a_runs_key_changes_with_what_its_result_depends_on(file: Path, old: str, new: str) -> None:
    before = {row.run.key for row in make_plan(load_experiment(file)).rows}
    after = {row.run.key for row in make_plan(load_experiment(edited(file, old, new))).rows}
    assert len(before & after) == (len(before) // 2 if "1.5" in new else 0)


def test_a_runs_key_changes_with_its_policys_file_and_not_with_its_label(tmp_path: Path) -> None:
    source = (catalogue.shipped() / "policies" / "sglang+.py").read_text()
    (tmp_path / "own.py").write_text(source)
    file = tmp_path / "e.toml"
    file.write_text(
        'title = ""\ndescription = ""\n[[traces]]\ntrace = "sharegpt"\ncapacity = 1000000000\n'
        '[[policies]]\npolicy = "./own.py"\n'
    )
    first = make_plan(load_experiment(file)).rows[0]
    assert first.settings["policy"] == first.settings["label"] == "own"
    file.write_text(file.read_text() + 'label = "renamed"\n')
    renamed = make_plan(load_experiment(file)).rows[0]
    assert renamed.settings["label"] == "renamed"
    assert renamed.run.key == first.run.key
    (tmp_path / "own.py").write_text(source + "# edited\n")
    assert make_plan(load_experiment(file)).rows[0].run.key != first.run.key


def test_the_traces_recipe_names_parameters_of_a_policy(file: Path) -> None:
    edited(file, 'trace = "sharegpt"', 'trace = "lmsys"')
    rows = make_plan(load_experiment(file)).rows
    assert {row.settings.get("param_multiplier") for row in rows} == {None, 15}


# What is edited in the good file -> what the message says beside the edited line.
MISTAKES = {
    ("requests = true", "request = true"): "unknown key 'request'; did you mean 'requests'",
    ("sessions = 20", "session = 20"): "unknown key 'session' in [traces]; did you mean 'sessions'",
    ("sessions = 20", 'sessions = "20"'): "expected a whole number",
    ("[1, 2.5]", "[1, 1]"): "1 is listed twice",
    ("[1, 2.5]", "[]"): "expected a number, or a list",
    ('"sharegpt"', '"sharegtp"'): "did you mean 'sharegpt'",
    ("sessions = 20", "sessions = 9999"): "give 1 to 263",
    ("[1, 2.5]", "[1, -2.5]"): "must be a number from 1e-09",
    ('"1GB", "0.5wss"', '"1GB", "5XB"'): "capacity '5XB': not understood",
    ('"0.5wss"', '"0wss"'): "must be above 0wss",
    ("sessions = 20", "seed = 3"): "has no effect on trace 'sharegpt'",
    ('model = "hybrid-7b"', 'model = "hybrid7b"'): "did you mean 'hybrid-7b'",
    ("state_dimension", "state_dimensions"): "did you mean 'state_dimension'",
    ("[16, 128]", "[16, 0]"): "expected a whole number from 1",
    ("[16, 128]", '[16, "wide"]'): "state_dimension = 'wide', expected a whole number from 1",
    ("[16, 128]", "[16, 1.5]"): "expected a whole number or a word, or a list of them",
    ('policy = "marconi"', 'policy = "marcony"'): "did you mean 'marconi'",
    ("params.alpha", "params.alhpa"): "did you mean 'alpha'",
    ("[0.0, 1.0]", "[0.0, -1.0]"): "give a number from 0 up",
    ('kind = "lines"', 'kind = "line"'): "did you mean 'lines'",
    ('"capacity_bytes"', '"capacity_byte"'): "did you mean 'capacity_bytes'",
    ('"token_hit_rate"', '"hit_rate"'): "did you mean 'token_hit_rate'",
    ('series = ["best"]', 'series = ["bets"]'): "did you mean 'best'",
    ('over = "vllm+"', 'over = "vllm"'): "did you mean 'vllm+'",
    ('y = "token_hit_rate"', 'y = "ttft"'): "needs a percentile",
    ("sessions = 20", "sessions = "): "not TOML",
}


@pytest.mark.parametrize(("old", "new"), MISTAKES)
def test_a_mistake_names_the_file_the_line_and_what_is_allowed(
    file: Path, old: str, new: str
) -> None:
    edited(file, old, new)
    number = line_of(file, new)
    with pytest.raises(UserError, match=re.escape(MISTAKES[old, new])) as raised:
        checked_plan(file)
    assert str(raised.value).startswith(f"{file}:{number}: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("policy", "rules", "message"),
    [
        ('"marconi"', '"artefact"', "rules 'artefact': unknown; did you mean 'artifact'"),
        ('"marconi"', "3", "rules = 3, expected 'paper' or 'artifact', or a list of them"),
        ('"marconi"', '["paper", "paper"]', "'paper' is listed twice"),
        ('"unbounded"', '["paper", "artifact"]', "the published code has no such policy"),
        ('"marconi"\nparams.clock = "seconds"', '"artifact"', "have a logical clock only"),
    ],
)
def test_rules_that_are_not_allowed(file: Path, policy: str, rules: str, message: str) -> None:
    file.write_text(f'{TEXT}\n[[policies]]\npolicy = {policy}\nlabel = "x"\nrules = {rules}\n')
    with pytest.raises(UserError, match=re.escape(message)) as raised:
        make_plan(load_experiment(file))
    assert str(raised.value).startswith(f"{file}:{line_of(file, 'rules = ')}: ")


def test_rules_need_the_accounting_of_the_paper(file: Path) -> None:
    text = TEXT.replace('model = "hybrid-7b"\nstate_dimension = [16, 128]', 'model = "qwen3.5-4b"')
    file.write_text(f'{text}\n[[policies]]\npolicy = "sglang+"\nrules = "artifact"\n')
    with pytest.raises(UserError, match="its accounting is 'exact'") as raised:
        make_plan(load_experiment(file))
    assert str(raised.value).startswith(f"{file}:{line_of(file, 'rules = ')}: ")


def test_the_second_table_of_a_kind_is_told_from_the_first(file: Path) -> None:
    file.write_text(TEXT + '\n[[policies]]\npolicy = "sglang+"\nlable = "x"\n')
    with pytest.raises(UserError, match="unknown key 'lable'") as raised:
        load_experiment(file)
    assert str(raised.value).startswith(f"{file}:{line_of(file, 'lable')}: ")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('trace = "sharegpt"\n', "", r"mine.toml:9: no key 'trace' in \[traces\]"),
        ('capacity = ["1GB", "0.5wss"]\n', "", r"mine.toml:9: no key 'capacity' in \[traces\]"),
        ('title = "A title"\n', "", r"mine.toml: no key 'title'; an experiment needs it"),
    ],
)
def test_a_missing_key_is_told_with_its_table(file: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_experiment(edited(file, old, new))


def test_an_experiment_needs_traces_and_policies(file: Path) -> None:
    file.write_text('title = ""\ndescription = ""\n')
    with pytest.raises(UserError, match=r"no \[\[traces\]\]"):
        load_experiment(file)


def test_figures_of_requests_need_requests(file: Path) -> None:
    edited(file, "requests = true", "requests = false")
    file.write_text(file.read_text() + '[[figures]]\nname = "b"\nkind = "cdf"\ny = "ttft"\n')
    with pytest.raises(UserError, match="set requests = true"):
        figures_of(load_experiment(file))


def test_figures_of_runs_need_policies(file: Path) -> None:
    text = TEXT.split("[[policies]]")[0] + '[[figures]]\nkind = "cdf"\ny = "ttft"\n'
    file.write_text(text)
    with pytest.raises(UserError, match=r"mine.toml: no \[\[policies\]\]; kind 'cdf' needs"):
        figures_of(load_experiment(file))


def test_the_same_run_twice_under_one_label_is_a_mistake(file: Path) -> None:
    file.write_text(TEXT + '\n[[policies]]\npolicy = "vllm+"\nparams.block_size = 32\n')
    with pytest.raises(UserError, match=r"mine.toml:\d+: 'vllm\+' asks for the same run twice"):
        make_plan(load_experiment(file))


def test_one_run_under_two_labels_runs_once(file: Path) -> None:
    file.write_text(TEXT + '\n[[policies]]\npolicy = "vllm+"\nlabel = "again"\n')
    plan = make_plan(load_experiment(file))
    assert len(plan.rows) == len(plan.runs) + 8


def test_an_unknown_experiment_suggests_a_close_one() -> None:
    with pytest.raises(UsageError, match=r"experiment 'fig7': .*did you mean 'fig07'"):
        load_experiment("fig7")


def test_capacities_may_be_fractions_of_the_working_set() -> None:
    assert working_set_fraction("0.25wss") == 0.25
    assert working_set_fraction("2wss") == 2.0
    assert working_set_fraction("60GB") is None


def test_reading_experiments_imports_nothing_heavy() -> None:
    code = (
        "import sys; from marconi_sim.sweeps.experiment import load_experiment; load_experiment('fig07');"
        "print({'numpy', 'numba', 'pandas', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", catalogue.entries("experiments"))
def test_every_shipped_experiment_says_what_it_is_and_all_its_names_resolve(name: str) -> None:
    experiment = load_experiment(name)
    assert experiment.title
    assert experiment.description
    if not experiment.policies:  # draws traces or models alone: tests/test_figures.py
        with pytest.raises(UsageError, match=f"marconi-sim figures {name}"):
            make_plan(experiment)
        return
    plan = make_plan(experiment)
    assert plan.rows
    columns = {column for row in plan.rows for column in row.settings}
    for figure in figures_of(experiment):
        assert figure.x in {"", "capacity_bytes", *columns}
    assert columns <= {
        *SETTINGS, *METRICS, "trace_sha256", "policy_sha256", "version", "configuration", "run",
        "param_alpha", "param_multiplier", "param_clock", "param_block_size",
    }  # fmt: skip


def test_the_paper_has_its_138_configurations_of_24_runs() -> None:
    plan = make_plan(load_experiment("paper"))
    by_trace: dict[str, set[str]] = {}
    for row in plan.rows:
        by_trace.setdefault(row.settings["trace"], set()).add(row.settings["configuration"])
    assert {trace: len(found) for trace, found in by_trace.items()} == {
        "lmsys": 30, "sharegpt": 36, "swebench": 72,
    }  # fmt: skip
    assert len(plan.runs) == 138 * 24
    assert plan.best == {"static alpha": "best static alpha"}
    static = [row.settings for row in plan.rows if row.settings["label"] == "static alpha"]
    alphas = sorted({settings["param_alpha"] for settings in static})
    assert alphas == [i / 10 for i in range(21)]


def test_shipped_experiments_begin_with_a_comment_that_says_why() -> None:
    for path in catalogue.entries("experiments").values():
        assert re.match(r"# \S", path.read_text("utf-8")), path
