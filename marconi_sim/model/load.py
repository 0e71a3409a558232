"""From a name or a path to a model: a shipped file, a user's own TOML, or a Hugging Face config.json."""

from __future__ import annotations

from pathlib import Path

from marconi_sim.base.errors import UsageError, UserError, check_argument, did_you_mean
from marconi_sim.base.files import readable_file
from marconi_sim.base.toml_document import Document
from marconi_sim.model.base import Model
from marconi_sim.model.config_file import read_json
from marconi_sim.model.exact import read_exact_model
from marconi_sim.model.huggingface import read_config
from marconi_sim.model.paper import read_paper_model

_FOLDER = Path(__file__).parent / "shapes"
ACCOUNTINGS = {"paper": read_paper_model, "exact": read_exact_model}


def models() -> dict[str, Path]:
    """Return the shipped models by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}


def _load_config(path: Path) -> Model:
    name = path.resolve().parent.name if path.stem == "config" else path.stem
    return read_config(read_json(path), name or path.stem, path)


def load_model(name_or_path: str | Path) -> Model:
    """Return a shipped model by name, or a user's own by the path of its TOML file or of a Hugging Face config.json.

    Options: `vary(load_model("qwen3.5-27b"), {"kv_dtype": "fp8"})`.

    Raises:
        UsageError: an unknown name, or neither text nor a path.
        UserError: a file that is not a model; the message names the key.
    """
    check_argument("model", name_or_path, (str, Path), "a name or the path of a file")
    known = models()
    if isinstance(name_or_path, str) and name_or_path in known:
        path = known[name_or_path]
    elif (
        isinstance(name_or_path, Path)
        or "/" in name_or_path
        or name_or_path.endswith((".toml", ".json"))
    ):
        path = readable_file(Path(name_or_path), "model")
    else:
        raise UsageError(
            f"model '{name_or_path}': unknown{did_you_mean(name_or_path, known)}"
            " (or the path of a .toml file or of a Hugging Face config.json)"
        )
    if path.suffix == ".json":
        return _load_config(path)
    document = Document(path, "a model")
    accounting = document.take("accounting", str)
    if accounting not in ACCOUNTINGS:
        raise UserError(
            f"{document.place('accounting')}: accounting = '{accounting}', allowed: {', '.join(ACCOUNTINGS)}"
        )
    return ACCOUNTINGS[accounting](document)
