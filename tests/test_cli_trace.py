"""`marconi-sim trace`: what each command prints and writes, and what it says about mistakes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from marconi_sim.base import catalogue
from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.cli.trace import trace_command
from marconi_sim.trace.compiled.trace import load
from marconi_sim.trace.importing.readers import lmsys

RECORDS = [
    {"timestamp": 0, "input_length": 600, "output_length": 20, "hash_ids": [0, 1]},
    {"timestamp": 9000, "input_length": 1100, "output_length": 5, "hash_ids": [0, 2, 3]},
]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(trace_command, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in RECORDS))
    return path


@pytest.fixture
def made(tmp_path: Path, log: Path) -> Path:
    assert run("import", log, "-o", tmp_path / "made.parquet").exit_code == 0
    return tmp_path / "made.parquet"


def test_commands_start_without_heavy_imports() -> None:
    code = (
        "import sys; import marconi_sim.cli.trace;"
        "heavy = ('numba', 'numpy', 'pandas', 'pyarrow', 'matplotlib');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["import", "build", "info", "check", "export"])
def test_every_command_has_help(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 4


# import


def test_import_guesses_the_format_and_sums_up(log: Path, tmp_path: Path) -> None:
    result = run("import", log, "-o", tmp_path / "t.parquet")
    assert result.stdout == ""
    assert "2 requests in 1 session, 1,700 input tokens" in result.stderr
    assert "continuations inferred: 1 of 2 requests" in result.stderr
    made = load(tmp_path / "t.parquet")
    assert made.requests == 2
    assert made.provenance["source_file"] == "log.jsonl"
    assert str(tmp_path) not in json.dumps(dict(made.provenance))


def test_import_passes_every_option(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    turns = [{"role": r, "content": "x"} for _ in range(3) for r in ("user", "assistant")]
    path.write_text(
        "".join(json.dumps({"session_id": k, "messages": turns}) + "\n" for k in range(3))
    )
    given = {"tokenizer": "bytes", "keep-observations": 1, "max-tokens": 999, "max-turns": 2}
    given |= {"min-rounds": 3, "first-sessions": 2, "format": "messages"}
    options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
    result = run("import", path, "-o", tmp_path / "t.parquet", *options)
    assert result.exit_code == 0
    made = load(tmp_path / "t.parquet")
    assert (made.requests, len(made.session_names)) == (4, 2)
    assert made.provenance["options"] == {
        "keep_observations": 1,
        "max_tokens": 999,
        "max_turns": 2,
        "min_rounds": 3,
        "first_sessions": 2,
    }


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (["{log}", "-o", "{tmp}/t.jsonl"], UsageError, "a compiled trace is a Parquet file"),
        (
            ["{log}", "-o", "{tmp}/missing/t.parquet"],
            UserError,
            "the folder .*missing does not exist",
        ),
        (["{log}", "-o", "{tmp}/t.parquet", "--format", "moncake"], UsageError, "mean 'mooncake'"),
        (
            ["{log}", "-o", "{tmp}/t.parquet", "--tokenizer", "bytes"],
            UsageError,
            "means nothing to",
        ),
        (["{log}", "-o", "{tmp}/t.parquet", "--block-size", "0"], UsageError, "at least 1"),
        (["{log}", "-o", "{tmp}/t.parquet", "--block-size", "16"], UserError, "wrong block size"),
        (["{tmp}/no.jsonl", "-o", "{tmp}/t.parquet"], UserError, "no such file"),
        (["{tmp}", "-o", "{tmp}/t.parquet", "--format", "mooncake"], UserError, "is a directory"),
        (["{log}", "-o", "{tmp}"], UsageError, "a compiled trace is a Parquet file"),
        (["", "-o", "{tmp}/t.parquet"], UsageError, "SOURCE '': is empty"),
        (
            ["{log}", "-o", "{tmp}/t.parquet", "--format", "messages", "--tokenizer", ""],
            UsageError,
            "tokenizer '': is empty; give 'bytes'",
        ),
    ],
)
def test_import_mistakes(
    log: Path, tmp_path: Path, arguments: list[str], kind: type[UserError], text: str
) -> None:
    filled = [a.format(log=log, tmp=tmp_path) for a in arguments]
    with pytest.raises(kind, match=text) as error:
        run("import", *filled)
    assert "\n" not in str(error.value)
    assert error.value.exit_status == (2 if kind is UsageError else 1)
    assert list(tmp_path.iterdir()) == [log]


def test_import_of_text_that_is_not_json(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("hello\n")
    with pytest.raises(UsageError, match="none of the known formats"):
        run("import", path, "-o", tmp_path / "t.parquet")
    with pytest.raises(UserError, match=r"x.jsonl:1: not JSON"):
        run("import", path, "--format", "mooncake", "-o", tmp_path / "t.parquet")


def test_import_from_the_hub_records_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    turns = [{"role": r, "content": "x"} for r in ("user", "assistant")]
    rows = [{"conversation_id": "a", "conversation": turns}]
    monkeypatch.setattr(datasets, "load_dataset", lambda **_: rows)
    monkeypatch.setattr(lmsys, "_meet_hub", lambda name: None)
    monkeypatch.chdir(tmp_path)
    result = run(
        "import", "some/chats", "--format", "lmsys", "--tokenizer", "bytes", "-o", "t.parquet"
    )
    assert result.exit_code == 0
    assert load(tmp_path / "t.parquet").provenance["source_file"] == "hub:some/chats"


# build


def test_build_makes_the_shipped_trace_again(tmp_path: Path) -> None:
    parameters = catalogue.shipped() / "traces" / "synthetic" / "lmsys-parameters.toml"
    result = run("build", "lmsys", "--source", parameters, "-o", tmp_path / "t.parquet")
    assert "the same as the trace that was at" in result.stderr
    shipped = catalogue.shipped() / "traces" / "data" / "lmsys.parquet"
    assert load(tmp_path / "t.parquet").sha256 == load(shipped).sha256
    assert (tmp_path / "t.parquet").read_bytes() == shipped.read_bytes()


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("mooncake", "mooncake_conversation.jsonl.gz"),
        ("claude-code", "weka_claudecode_150.jsonl.gz"),
    ],
)
def test_build_from_shared_data(tmp_path: Path, shared: Path, name: str, source: str) -> None:
    out = tmp_path / "t.parquet"
    result = run("build", name, "--source", shared / "data" / "blocks" / source, "-o", out)
    assert "the same as the trace that was at" in result.stderr


def test_build_mistakes(tmp_path: Path, log: Path, made: Path) -> None:
    with pytest.raises(UserError, match=r"is built from mooncake_conversation\.jsonl\.gz"):
        run("build", "mooncake", "--source", log, "-o", tmp_path / "t.parquet")
    with pytest.raises(UsageError, match="did you mean 'lmsys'"):
        run("build", "lmsy", "--source", log)
    with pytest.raises(UsageError, match="not a recipe"):
        run("build", made, "--source", log)


# info


def test_info_prints_one_json_object(made: Path) -> None:
    result = run("info", made, "--json")
    facts = json.loads(result.stdout)
    assert (facts["trace"], facts["requests"], facts["block_size"]) == ("made", 2, 512)
    assert facts["seen_tokens"] == 620  # the first input and its answer


def test_info_prints_tables_and_draws(made: Path, tmp_path: Path) -> None:
    result = run("info", made, "--plot", tmp_path / "p.png")
    assert "2 in 1 session" in result.stdout
    assert re.search(r"^synthetic +not said by the source *$", result.stdout, re.MULTILINE)
    assert "p.png: written" in result.stderr
    assert (tmp_path / "p.png").stat().st_size > 5000


def test_info_mistakes(made: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot draw '\.gif'"):
        run("info", made, "--plot", tmp_path / "p.gif")
    with pytest.raises(UsageError, match="trace 'nothing': no such file and not in the catalogue"):
        run("info", "nothing")


# check


@pytest.mark.parametrize("name", ["lmsys", "mooncake", "claude-code"])
def test_check_shipped_traces(name: str) -> None:
    assert run("check", name).stdout.startswith(f"{name}: ok, ")


def rewritten(path: Path, **changes: Any) -> None:
    """Write a compiled trace again with other values in its header."""
    table = pq.read_table(path)
    header = json.loads(table.schema.metadata[b"marconi_sim"]) | changes
    metadata = {b"marconi_sim": json.dumps(header).encode()}
    # Requests and nodes are in row groups of their own.
    rows = header["requests"]
    pq.write_table(table.replace_schema_metadata(metadata), path, row_group_size=rows)


def test_check_damaged_traces(made: Path) -> None:
    whole = made.read_bytes()
    made.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="corrupted or not a Parquet file"):
        run("check", made)
    made.write_bytes(whole)
    rewritten(made, version=99)
    with pytest.raises(UserError, match=r"version 99, .* install a newer marconi-sim"):
        run("check", made)
    made.write_bytes(whole)
    rewritten(made, sha256="0" * 64)
    with pytest.raises(UserError, match="corrupted compiled trace"):
        run("check", made)
    pq.write_table(pa.table({"a": np.arange(3)}), made)
    with pytest.raises(UserError, match="a Parquet file, but not a compiled trace"):
        run("check", made)


def test_check_a_recipe_that_hides_what_is_synthetic(tmp_path: Path) -> None:
    traces = catalogue.shipped() / "traces"
    (tmp_path / "data").mkdir()
    shutil.copy(traces / "data" / "lmsys.parquet", tmp_path / "data")
    recipe = (traces / "lmsys.toml").read_text().replace("synthetic = true", "synthetic = false")
    (tmp_path / "real.toml").write_text(recipe)
    with pytest.raises(UserError, match="synthetic = false, but the trace itself says true"):
        run("check", tmp_path / "real.toml")


# export


@pytest.mark.parametrize(
    ("target", "name", "said"),
    [
        ("requests", "t.csv", ""),
        ("requests", "t.parquet", ""),
        ("mooncake", "t.jsonl.gz", "sharing inside blocks of 512 tokens"),
        ("artifact", "t.jsonl", "token ids are invented"),
    ],
)
def test_export(made: Path, tmp_path: Path, target: str, name: str, said: str) -> None:
    result = run("export", made, "--to", target, "-o", tmp_path / name)
    assert said in result.stderr
    assert f"{name}: 2 requests" in result.stderr
    assert (tmp_path / name).stat().st_size > 50


def test_export_mistakes(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    with pytest.raises(UsageError, match="--to mooncak: unknown; did you mean 'mooncake'"):
        run("export", made, "--to", "mooncak", "-o", out)
    with pytest.raises(
        UsageError, match="--seed 3: means nothing with --to mooncake, only artifact"
    ):
        run("export", made, "--to", "mooncake", "--seed", "3", "-o", out)
    with pytest.raises(UsageError, match="--block-size 8: means nothing with --to artifact"):
        run("export", made, "--to", "artifact", "--block-size", "8", "-o", out)
    with pytest.raises(UsageError, match="sessions 9: trace 'made' has 1"):
        run("export", made, "--to", "artifact", "--sessions", "9", "-o", out)
    assert not out.exists()
