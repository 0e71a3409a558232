"""The notebooks: stored clean, and executed on their own settings in a fresh folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from support import REPOSITORY

import marconi_sim as ms
from marconi_sim.latency.table import load_latency

FOLDER = REPOSITORY / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 300  # for one cell; compilation on a busy machine included
FIRST_TIME = ("notice: compiled", "Matplotlib is building the font cache")  # on a fresh machine

Execute = Callable[[str, str], tuple[NotebookNode, Any]]


class OwnKernel(AsyncKernelManager):
    """Starts the interpreter that runs the tests, whatever kernels are installed for the user or the machine."""

    @property
    def kernel_spec(self) -> KernelSpec:
        return KernelSpec(resource_dir="", **get_kernel_dict())


@pytest.fixture
def execute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Execute:
    """Execute a notebook with nothing of the user's; also return the value of an expression, through JSON."""
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        (tmp_path / variable).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / variable))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    work = tmp_path / "work"
    work.mkdir()

    def run(name: str, expression: str) -> tuple[NotebookNode, Any]:
        notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        notebook.cells.append(
            nbformat.v4.new_code_cell(f"import json\nprint(json.dumps({expression}))")
        )
        NotebookClient(
            notebook,
            kernel_manager_class=OwnKernel,
            timeout=SECONDS,
            resources={"metadata": {"path": str(work)}},
        ).execute()
        assert list(work.iterdir()) == []
        answer = notebook.cells.pop().outputs
        return notebook, json.loads(answer[0].text)

    return run


def outputs(notebook: NotebookNode) -> list[NotebookNode]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def text_of(notebook: NotebookNode) -> str:
    return "".join(output.get("text", "") for output in outputs(notebook))


def assert_clean_run(notebook: NotebookNode, pictures: int) -> None:
    """Nothing but results: no error, no complaint on stderr, and that many plots."""
    lines = [
        line
        for output in outputs(notebook)
        if output.get("name") == "stderr"
        for line in output.text.splitlines()
    ]
    assert [line for line in lines if not line.startswith(FIRST_TIME)] == []
    assert sum("image/png" in output.get("data", {}) for output in outputs(notebook)) == pictures


def test_there_are_four_and_the_folder_says_what_each_answers():
    names = [path.name for path in NOTEBOOKS]
    assert len(names) == 4
    assert (
        re.findall(r"^\| \[`([^`]+)`\]\(\1\) ", (FOLDER / "README.md").read_text(), re.M) == names
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_clean(path: Path):
    text = path.read_text("utf-8")
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert len(text) < 50_000
    assert nbformat.writes(notebook) + "\n" == text  # so that a diff shows what was edited
    assert notebook.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert not re.search(r"/(home|root|tmp|work|Users)/", text)
    for cell in notebook.cells:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cell.id), "an id that says what the cell is"
        assert cell.metadata == {}
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
    code = [cell.id for cell in notebook.cells if cell.cell_type == "code"]
    assert code[:1] == ["settings"]


@pytest.mark.compiled
def test_the_capacity_found_reaches_the_target_and_a_smaller_one_does_not(execute: Execute):
    notebook, found = execute(
        "capacity-what-if",
        "[TRACE, TARGET_HIT_RATE, TARGET_P95_TTFT, list(answers.values()), [list(k) for k in answers]]",
    )
    assert_clean_run(notebook, pictures=1)
    trace_name, hit_rate, p95, capacities, keys = found
    assert len(keys) == 12
    trace = ms.load_trace(trace_name)
    latency = load_latency()
    for gigabytes, (target, model, policy) in zip(capacities, keys, strict=True):
        for share, enough in ((1.0, True), (0.95, False)):
            capacity = round(share * gigabytes * 1e9)
            result = ms.simulate(trace, policy=policy, model=model, capacity=capacity)
            left = result.columns["input_tokens"] - result.columns["reused_tokens"]
            if "hit rate" in target:
                reached = result.summary["token_hit_rate"] >= hit_rate
            else:
                reached = np.percentile(latency.seconds_of(left), 95) <= p95
            assert reached == enough, (target, model, policy, capacity)
        assert f"under {policy} {gigabytes:g} GB" in text_of(notebook)


@pytest.mark.compiled
def test_causes_add_up_and_the_bounds_say_what_would_help(execute: Execute):
    notebook, found = execute(
        "anatomy-of-misses",
        "[int(input_tokens), tokens.to_dict('records'), asks.to_dict(),"
        " [parts_of(bounds[name]) for name in ('unbounded', 'ceiling')]]",
    )
    assert_clean_run(notebook, pictures=3)
    input_tokens, runs, asks, (unbounded, ceiling) = found
    assert len(runs) == 15
    for parts in (*runs, asks, unbounded, ceiling):
        assert sum(parts.values()) == input_tokens
    assert {part for part, tokens in unbounded.items() if tokens} == {
        "reused", "cold", "no_checkpoint"
    }  # fmt: skip
    assert {part for part, tokens in ceiling.items() if tokens} == {"reused", "cold"}
    assert asks["nothing helps"] == ceiling["cold"]
    assert min(asks.values()) > 0


@pytest.mark.compiled
def test_a_sweep_is_read_run_again_and_traced_back(execute: Execute):
    notebook, found = execute(
        "reading-a-sweep",
        "[len(frame), bool(same_bytes), bool(same_result), bool(same_hashes), list(kinds['parameters of policies']),"
        " shown[trusted][['trace', 'label']].drop_duplicates().values.tolist(), gains['gain, %'].tolist()]",
    )
    assert_clean_run(notebook, pictures=1)
    rows, *same, parameters, trusted, gains = found
    assert rows == 2 * 5 * (4 + 6 + 1)
    assert same == [True, True, True]
    assert parameters == ["param_block_size", "param_clock", "param_alpha", "param_multiplier"]
    assert {trace for trace, _ in trusted} == {"taubench"}  # lmsys is synthetic
    assert [label for _, label in trusted] == ["vllm+", "sglang+", "marconi", "unbounded"]
    assert len(gains) == 10


@pytest.mark.compiled
def test_the_policy_does_what_the_text_says(execute: Execute):
    notebook, found = execute(
        "writing-a-policy", "[mistakes, checked, compared.to_dict('records'), others]"
    )
    assert_clean_run(notebook, pictures=1)
    mistakes, checked, compared, others = found
    assert mistakes[0].startswith("parameter weight=-1 of policy 'spent': not allowed")
    assert "is not a weighted sum" in mistakes[1]
    assert checked["evictions"] > 100
    for rates in (*compared, *others.values()):
        assert max(rates.values()) == rates["unbounded"]
    for rates in (*compared, others["taubench"], others["botbots"]):
        assert rates["spent, weight 1"] > rates["best static alpha"]
    assert others["swebench"]["spent, weight 1"] < others["swebench"]["alpha 0"]
