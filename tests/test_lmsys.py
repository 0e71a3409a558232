"""The reader of LMSYS-Chat data, on small files of its schema, and the synthetic stand-in."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marconi_sim.base import catalogue
from marconi_sim.base.errors import UserError
from marconi_sim.trace.compiled.build import Request, build
from marconi_sim.trace.importing.format import ImportOptions
from marconi_sim.trace.importing.formats import detect_format, format_named
from marconi_sim.trace.importing.readers import lmsys
from marconi_sim.trace.importing.readers.synthetic_chat import load_parameters
from marconi_sim.trace.load import load_trace
from marconi_sim.trace.rebuild import build_trace
from marconi_sim.trace.recipe import load_recipe
from marconi_sim.trace.synthetic import chats

PARAMETERS = catalogue.shipped() / "traces" / "synthetic" / "lmsys-parameters.toml"


def row(name: str, rounds: int) -> dict[str, Any]:
    conversation = [
        {"content": f"{name} {role} {k}", "role": role}
        for k in range(rounds)
        for role in ("user", "assistant")
    ]
    return {
        "conversation_id": name,
        "model": "vicuna-13b",
        "conversation": conversation,
        "turn": rounds,
        "language": "English",
    }


ROWS = [row("aa", 2), row("bb", 11), row("cc", 10)]


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write(folder: Path, ending: str) -> Path:
    path = folder / f"chat{ending}"
    text = "".join(json.dumps(r) + "\n" for r in ROWS).encode()
    if ending == "":
        path.mkdir()
        pq.write_table(pa.Table.from_pylist(ROWS[:1]), path / "train-0.parquet")
        pq.write_table(pa.Table.from_pylist(ROWS[1:]), path / "train-1.parquet")
    elif ending == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
    return path


def read(path: Path, **given: Any) -> list[Request]:
    options = ImportOptions(tokenizer="bytes", **given)
    return list(format_named("lmsys", options).read(path, options, {}))


@pytest.mark.parametrize("ending", ["", ".parquet", ".jsonl", ".jsonl.gz", ".json"])
def test_local_copies(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path, ending)
    assert detect_format(path).name == "lmsys"
    found = read(path, min_rounds=10)
    assert [(r.session, r.turn) for r in found] == [
        *(("bb", k) for k in range(11)),
        *(("cc", k) for k in range(10)),
    ]
    assert found[0].words == 3
    first = json.dumps({"content": "bb user 0", "role": "user"}).encode()  # keys as in the data
    assert found[0].symbols[: found[0].input_tokens].tolist() == [256, *first]


def test_first_sessions_reads_twice(tmp_path: Path) -> None:
    found = read(write(tmp_path, ".parquet"), first_sessions=1)
    assert {r.session for r in found} == {"aa"}


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"conversation": []}, "row 0: no conversation_id"),
        ({"conversation_id": "a", "conversation": "x"}, "row 0: conversation is str, not a list"),
        (
            {"conversation_id": "a", "conversation": [{"role": "boss", "content": "x"}]},
            r"row 0: conversation\[0\]: role 'boss'",
        ),
    ],
)
def test_rows_of_another_schema(tmp_path: Path, record: Any, text: str) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(UserError, match=text):
        read(path)


def test_what_is_no_data_is_said_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "chat.parquet"
    broken.write_bytes(b"PAR1 nothing")
    with pytest.raises(UserError, match="cannot be read with datasets") as error:
        read(broken)
    assert "\n" not in str(error.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no \.parquet file in this directory"):
        read(tmp_path / "empty")
    (tmp_path / "chat.txt").write_text("hello")
    with pytest.raises(UserError, match=r"cannot read '.txt'; use .parquet, .json, .jsonl"):
        read(tmp_path / "chat.txt")
    with pytest.raises(UserError, match="no such file"):
        read(tmp_path / "chat" / "missing.parquet")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A hub that cannot be reached; returns what it was asked for, in order."""
    import datasets
    import huggingface_hub

    asked = []

    def refuse(_api: Any, name: str, **_options: Any) -> None:
        asked.append(f"info {name}")
        raise ConnectionError("no route\nto the hub")

    def load(**arguments: Any) -> None:
        assert arguments == {"path": "lmsys/lmsys-chat-1m", "split": "train", "streaming": True}
        asked.append("load")
        raise ConnectionError("no copy")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", refuse)
    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    return asked


def test_a_hub_that_cannot_be_reached_is_said_at_once_in_one_line(hub: list[str]) -> None:
    with pytest.raises(UserError) as error:
        read(Path("lmsys/lmsys-chat-1m"))
    text = str(error.value)
    assert text.startswith(
        "lmsys/lmsys-chat-1m: cannot be read with datasets (ConnectionError: no route)"
    )
    assert "HF_TOKEN" in text
    assert "\n" not in text
    assert hub == ["info lmsys/lmsys-chat-1m"]  # `datasets`, which tries again and again, is not


def test_an_offline_hub_is_not_asked(hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="no copy"):
        read(Path("lmsys/lmsys-chat-1m"))
    assert hub == ["load"]


def test_a_local_copy_needs_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "huggingface_hub.HfApi.dataset_info", lambda *_a, **_o: pytest.fail("the hub was asked")
    )
    assert read(write(tmp_path, ".jsonl"))


def test_datasets_is_imported_only_when_it_is_used() -> None:
    code = (
        "import sys; from marconi_sim.trace.importing.formats import formats; formats();"
        "print('datasets' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_hub_names(tmp_path: Path) -> None:
    assert lmsys.is_hub_name(Path("lmsys/lmsys-chat-1m"))
    assert not lmsys.is_hub_name(tmp_path / "a" / "b.parquet")


# the synthetic stand-in


def test_shipped_trace_is_what_its_parameters_give() -> None:
    recipe = load_recipe(catalogue.find("traces", "lmsys"))
    assert build_trace(recipe, PARAMETERS).sha256 == load_trace("lmsys").trace.sha256


def test_shipped_trace_says_that_it_is_synthetic() -> None:
    workload = load_trace("lmsys")
    assert workload.recipe is not None
    assert workload.recipe.synthetic
    assert "SYNTHETIC" in workload.recipe.title
    assert workload.trace.provenance["synthetic"] is True
    assert workload.recipe.policy_defaults["marconi"] == {"multiplier": 15}


def test_lengths_meet_what_is_published() -> None:
    trace = load_trace("lmsys").trace
    rounds = np.bincount(trace.session)
    assert rounds.min() >= 10 or trace.input_tokens.max() > 30_000  # a long session is cut
    assert (trace.input_tokens < 10_000).mean() > 0.8
    assert 0.05 < (trace.output_tokens > 1000).mean() < 0.2
    assert trace.input_tokens.max() <= 32_768
    parameters = load_parameters(PARAMETERS)
    assert np.percentile(trace.input_tokens, 95) == pytest.approx(14_100, rel=0.15)
    assert parameters.user.median * np.exp(
        (parameters.user.between**2 + parameters.user.within**2) / 2
    ) == pytest.approx(69.5, rel=0.05)


def test_sessions_share_the_wrapper_only_and_continue_themselves() -> None:
    parameters = load_parameters(PARAMETERS)
    trace = build(chats(parameters), {})
    for turn, session, node, i in zip(
        trace.turn,
        trace.session,
        trace.parent[trace.input_node],
        range(trace.requests),
        strict=True,
    ):
        if turn:
            assert session == trace.session[i - 1]
            assert node == trace.end_node[i - 1]
        else:
            assert trace.depth[node] == parameters.wrapper_tokens


def test_fewer_sessions_are_the_first_of_more(tmp_path: Path) -> None:
    text = PARAMETERS.read_text().replace("sessions = 200", "sessions = 3")
    path = tmp_path / "few.toml"
    path.write_text(text)
    assert detect_format(path).name == "synthetic-chat"
    few = [(r.input_tokens, r.output_tokens) for r in chats(load_parameters(path))]
    many = [(r.input_tokens, r.output_tokens) for r in chats(load_parameters(PARAMETERS))]
    assert few == many[: len(few)]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("seed = 42", "seed = -1", "seed -1: must be a whole number of at least 0"),
        ("sessions = 200", "sessions = 0", "sessions 0"),
        ("more_rounds = 6.0", "more_rounds = nan", "more_rounds nan"),
        ("median = 30", "median = 0", "user: median 0"),
        ("median = 30, ", "", "user: no key 'median'"),
        ("seed = 42", "sede = 42", "unknown key 'sede'; did you mean 'seed'"),
        ('kind = "synthetic chat"', 'kind = "chat"', "not a file of parameters"),
        ("seed = 42", "seed = ", "not TOML"),
    ],
)
def test_wrong_parameters(tmp_path: Path, old: str, new: str, text: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(PARAMETERS.read_text().replace(old, new))
    with pytest.raises(UserError, match=text):
        load_parameters(path)
