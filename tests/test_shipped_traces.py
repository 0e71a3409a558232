"""The shipped traces: that they load, hold no text, and are what their recipes say."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from marconi_sim.base import catalogue
from marconi_sim.trace.compiled.trace import Trace
from marconi_sim.trace.importing.formats import format_named
from marconi_sim.trace.load import load_trace
from marconi_sim.trace.rebuild import build_trace
from marconi_sim.trace.recipe import load_recipe

# sessions, requests, longest input; the counts of the sources are in their own documentation
FACTS = {
    "swebench": (826, 8780, 32607),
    "swebench-append": (826, 8779, 32679),
    "sharegpt": (263, 1909, 4317),
    "taubench": (200, 2454, 14603),
    "botbots": (2361, 15973, 3824),
}
FOLDER = catalogue.shipped() / "traces"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_loads_with_its_data_and_says_what_it_is(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.data.parent == FOLDER / "data"
    workload = load_trace(recipe.name)
    assert workload.requests == workload.trace.requests > 0
    assert (np.diff(workload.arrival) >= 0).all()
    assert workload.trace.provenance["synthetic"] == recipe.synthetic
    assert workload.trace.provenance["source"] == recipe.source
    assert recipe.build is None or format_named(recipe.build.format, recipe.build.options)


def test_every_data_file_belongs_to_a_recipe() -> None:
    recipes = [load_recipe(path) for path in FOLDER.glob("*.toml")]
    assert {p.name for p in (FOLDER / "data").iterdir()} == {r.data.name for r in recipes}


@pytest.mark.parametrize("name", FACTS)
def test_counts(name: str) -> None:
    trace = load_trace(name).trace
    facts = (len(trace.session_names), trace.requests, int(trace.input_tokens.max()))
    assert facts == FACTS[name]


@pytest.mark.parametrize("name", FACTS)
def test_files_are_small_and_name_no_local_path(name: str) -> None:
    data = load_recipe(FOLDER / f"{name}.toml").data
    assert data.stat().st_size < 500_000
    assert not re.search(rb"/(work|root|home|tmp)/", data.read_bytes())


def input_depth_shared_with_the_turn_before(trace: Trace) -> dict[int, list[int]]:
    """Return turn -> for each session, tokens of its end's path that the previous sequence shares,
    minus that sequence's length: 0 where the input continues it."""
    found: dict[int, list[int]] = {}
    rows = np.lexsort((trace.turn, trace.session))
    for before, row in itertools.pairwise(rows):
        if trace.session[before] != trace.session[row]:
            continue
        path = set()
        node = int(trace.end_node[before])
        while node != -1:
            path.add(node)
            node = int(trace.parent[node])
        node = int(trace.input_node[row])
        while node not in path:
            node = int(trace.parent[node])
        missing = int(trace.depth[node]) - int(trace.depth[trace.end_node[before]])
        found.setdefault(int(trace.turn[row]), []).append(missing)
    return found


def test_swebench_continues_each_turn_up_to_the_sixth_and_then_diverges_in_the_middle() -> None:
    shared_depth = input_depth_shared_with_the_turn_before(load_trace("swebench").trace)
    for turn, missing in shared_depth.items():
        assert (max(missing) == min(missing) == 0) if turn < 6 else max(missing) < 0


@pytest.mark.parametrize("name", ["swebench-append", "sharegpt", "taubench", "botbots"])
def test_other_traces_continue_every_turn(name: str) -> None:
    shared_depth = input_depth_shared_with_the_turn_before(load_trace(name).trace)
    assert {m for missing in shared_depth.values() for m in missing} == {0}


def test_both_swebench_traces_are_the_same_up_to_the_sixth_turn() -> None:
    lengths = []
    for name in ("swebench", "swebench-append"):
        trace = load_trace(name).trace
        early = trace.turn < 6
        rows = np.flatnonzero(early)[np.lexsort((trace.turn[early], trace.session[early]))]
        lengths.append((trace.input_tokens[rows], trace.output_tokens[rows]))
    np.testing.assert_equal(lengths[0], lengths[1])


@pytest.mark.parametrize(
    "name",
    ["sharegpt", "taubench", *(pytest.param(n, marks=pytest.mark.slow)
                               for n in ("botbots", "swebench", "swebench-append"))],
)  # fmt: skip
def test_a_trace_is_what_its_recipe_makes_of_its_source(name: str, shared: Path) -> None:
    recipe = load_recipe(FOLDER / f"{name}.toml")
    assert recipe.build is not None
    source = shared / "data" / "sessions" / recipe.build.source_file
    tokenizer = shared / "data" / "tokenizers" / "llama2_tokenizer.json"
    built = build_trace(recipe, source, str(tokenizer))
    shipped = load_trace(name).trace
    assert built.sha256 == shipped.sha256
    assert dict(built.provenance) == dict(shipped.provenance)
