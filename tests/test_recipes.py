"""Recipes: what is read, how mistakes are said, and building a trace again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.trace.arrivals import Arrivals
from marconi_sim.trace.compiled.trace import load, save
from marconi_sim.trace.importing.compile_source import source_sha256
from marconi_sim.trace.load import load_trace
from marconi_sim.trace.rebuild import build_trace
from marconi_sim.trace.recipe import load_recipe

RECIPE = """title = "A trace"
description = "What it is."
data = "data/mine.parquet"
source = "somewhere"
licence = "none"
synthetic = true
caveats = ["invented"]
capacity = "1.5GB"

[arrivals]
start = "fixed"
sessions_per_second = 2
gap = "typing"

[policy_defaults.marconi]
multiplier = 15

[build]
format = "messages"
source_file = "mine.jsonl"
source_sha256 = "SHA"
tokenizer = "bytes"
max_tokens = 100
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    roles = ["user", "assistant", "user", "assistant"]
    messages = [{"role": role, "content": "three short words"} for role in roles]
    lines = [{"session_id": name, "messages": messages} for name in ("b", "a")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def recipe(tmp_path: Path, source: Path) -> Path:
    """A recipe in a user's catalogue folder, without its data."""
    path = tmp_path / "mine" / "traces" / "mine.toml"
    (path.parent / "data").mkdir(parents=True)
    path.write_text(RECIPE.replace("SHA", source_sha256(source)).replace("= 100", "= 300"))
    return path


def test_a_recipe_is_read(recipe: Path) -> None:
    read = load_recipe(recipe)
    assert (read.name, read.title, read.synthetic) == ("mine", "A trace", True)
    assert read.data == recipe.parent / "data" / "mine.parquet"
    assert read.capacity == 1_500_000_000
    assert read.arrivals == Arrivals("fixed", "typing", sessions_per_second=2.0)
    assert read.caveats == ("invented",)
    assert read.policy_defaults == {"marconi": {"multiplier": 15}}
    assert read.build is not None
    assert (read.build.format, read.build.tokenizer) == ("messages", "bytes")
    assert read.build.options.max_tokens == 300
    assert read.build.options.max_turns is None


def test_a_recipes_trace_is_built_and_then_found_by_name(recipe: Path, source: Path) -> None:
    read = load_recipe(recipe)
    trace = build_trace(read, source)
    save(trace, read.data)
    workload = load_trace("mine", search=[recipe.parents[1]])
    assert workload.recipe == read
    assert workload.trace.sha256 == trace.sha256
    assert workload.arrival.tolist() == [0.0, 0.5, 2.0, 2.5]
    assert [workload.trace.session_names[s] for s in workload.trace.session[workload.order]] == [
        "a", "b", "a", "b",
    ]  # fmt: skip
    provenance = load(read.data).provenance
    assert provenance["synthetic"] is True
    assert provenance["caveats"] == ["invented"]
    assert provenance["options"] == {"max_tokens": 300}


def test_building_twice_gives_the_same_bytes(recipe: Path, source: Path) -> None:
    read = load_recipe(recipe)
    contents = []
    for _ in range(2):
        save(build_trace(read, source), read.data)
        contents.append(read.data.read_bytes())
    assert contents[0] == contents[1]


def test_another_source_is_refused(recipe: Path, source: Path) -> None:
    source.write_text(source.read_text() + "\n")
    with pytest.raises(UserError, match=r"mine\.jsonl: SHA-256 .*, but 'mine' is built from"):
        build_trace(load_recipe(recipe), source)
    with pytest.raises(UserError, match="no such file or directory"):
        build_trace(load_recipe(recipe), source.parent / "absent")


def change(recipe: Path, old: str, new: str) -> Path:
    text = recipe.read_text()
    assert old in text
    recipe.write_text(text.replace(old, new))
    return recipe


def test_a_tokenizer_that_is_not_shipped_has_to_be_given(recipe: Path, source: Path) -> None:
    read = load_recipe(change(recipe, '"bytes"', '"words.json sha256:0123456789ab"'))
    with pytest.raises(UsageError, match="which is not shipped; give its file with --tokenizer"):
        build_trace(read, source)
    with pytest.raises(UserError, match="tokenizer bytes: is 'bytes', but 'mine' is built with"):
        build_trace(read, source, "bytes")


def test_a_recipe_without_build_cannot_be_built(recipe: Path, source: Path) -> None:
    recipe.write_text(recipe.read_text().split("[build]")[0])
    with pytest.raises(UsageError, match=r"no \[build\]"):
        build_trace(load_recipe(recipe), source)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('title = "A trace"', "", "no key 'title'"),
        ("[arrivals]", "[arrival]", r":10: unknown key 'arrival'; did you mean 'arrivals'\?"),
        ("licence", "license", r":5: unknown key 'license'; did you mean 'licence'\?"),
        ("sessions_per_second", "session_per_second", r":12: unknown key .* in \[arrivals\]"),
        ("synthetic = true", 'synthetic = "yes"', ":6: synthetic = 'yes', expected true or false"),
        ('title = "A trace"', "title = 3", ":1: title = 3, expected text"),
        ('["invented"]', '"invented"', ":7: caveats: expected a list of texts"),
        ('"1.5GB"', '"much"', ":8: capacity 'much': not understood"),
        ('"1.5GB"', "1500", ":8: capacity = 1500, expected text"),
        ('"fixed"', '"sometimes"', r":11: \[arrivals\] start 'sometimes': unknown"),
        ('gap = "typing"', "", r"no key 'gap' in \[arrivals\]"),
        ('gap = "typing"', "gap = 5", ":13: gap = 5, expected text"),
        ("second = 2", "second = 0", r":12: \[arrivals\] sessions_per_second 0"),
        ("second = 2", "second = nan", r":12: \[arrivals\] sessions_per_second nan"),
        ('"typing"', '"typing"\nresponse_time = 5', r":14: \[arrivals\] response_time 5: has no"),
        ("[policy_defaults.marconi]", "[policy_defaults]", "expected tables"),
        ('format = "messages"', "", r"no key 'format' in \[build\]"),
        ("max_tokens", "max_token", r":23: unknown key 'max_token' in \[build\]; did you mean"),
        ("max_tokens = 300", "max_tokens = 3.5", ":23: max_tokens = 3.5, expected a whole number"),
        ("title =", "title", ":1: not TOML"),
    ],
)
def test_mistakes_are_named_with_their_line(recipe: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(UserError, match=rf"mine\.toml.*{problem}") as caught:
        load_recipe(change(recipe, old, new))
    assert "\n" not in str(caught.value)


def test_files_that_are_no_recipe_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8 text"):
        load_recipe(path)
    with pytest.raises(UserError, match="is a directory"):
        load_recipe(tmp_path)


def test_a_recipe_without_its_data_names_the_file(recipe: Path) -> None:
    with pytest.raises(UserError, match=r"mine\.parquet: no such file"):
        load_trace(recipe)


def test_the_hash_of_a_folder_covers_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = source_sha256(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    renamed = source_sha256(tmp_path)
    (tmp_path / "b").write_text("2")
    assert len({before, renamed, source_sha256(tmp_path)}) == 3
