"""Tokenizers: ids, BOS, identities, and files that are none."""

from __future__ import annotations

import hashlib
import importlib.util
import io
from pathlib import Path

import numpy as np
import pytest

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.trace.importing.tokenizers import load_tokenizer


def write_tokenizer_json(path: Path, *, special: bool) -> None:
    """Write a word-level tokenizer; with `special`, <s> before and </s> after each text."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    model = Tokenizer(WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3, "b": 4}, "<unk>"))
    model.pre_tokenizer = Whitespace()
    if special:
        model.post_processor = TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    model.enable_truncation(4)
    model.save(str(path))


def write_sentencepiece(path: Path) -> None:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hello world", "hello there", "a world of words"] * 10),
        model_writer=model,
        vocab_size=40,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    path.write_bytes(model.getvalue())


def test_bytes_are_the_bytes_of_utf8_after_bos() -> None:
    tokenizer = load_tokenizer("bytes")
    assert tokenizer.identity == "bytes"
    ids = tokenizer.encode("aé")
    assert ids.tolist() == [256, 97, 195, 169]
    assert ids.dtype == np.int32
    assert tokenizer.encode("aé", bos=False).tolist() == [97, 195, 169]
    assert tokenizer.encode("").tolist() == [256]


def test_tokenizer_json_gets_its_bos_but_no_end_token_and_is_never_cut(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    write_tokenizer_json(path, special=True)
    tokenizer = load_tokenizer(str(path))
    assert tokenizer.encode("a b a b a b").tolist() == [1, 3, 4, 3, 4, 3, 4]
    assert tokenizer.encode("a", bos=False).tolist() == [3]


def test_tokenizer_json_without_bos_adds_none(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    write_tokenizer_json(path, special=False)
    assert load_tokenizer(str(path)).encode("b a").tolist() == [4, 3]


def test_identity_is_the_name_of_the_file_and_its_hash_but_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    write_tokenizer_json(path, special=False)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    assert load_tokenizer(str(path)).identity == f"words.json sha256:{digest}"


def test_sentencepiece_models_are_read_whatever_their_ending(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model.v9"
    write_sentencepiece(path)
    tokenizer = load_tokenizer(str(path))
    ids = tokenizer.encode_all(["hello world", ""])
    assert ids[0][0] == ids[1][0] == 1
    assert ids[0].size > 1
    assert ids[1].size == 1


def test_mistral_v1_is_the_model_that_mistral_common_ships(shared: Path) -> None:
    pytest.importorskip("mistral_common")
    file = shared / "data" / "tokenizers" / "mistral_v1.model"
    ours, theirs = load_tokenizer("mistral-v1"), load_tokenizer(str(file))
    assert ours.identity.split()[0] == "mistral-v1"
    assert ours.identity.split()[1] == theirs.identity.split()[1]
    assert ours.encode("Hello there").tolist() == theirs.encode("Hello there").tolist()


def test_mistral_v1_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"pip install 'marconi-sim\[mistral\]'"):
        load_tokenizer("mistral-v1")


def test_llama_2_begins_with_its_bos(shared: Path) -> None:
    tokenizer = load_tokenizer(str(shared / "data" / "tokenizers" / "llama2_tokenizer.json"))
    assert tokenizer.bos == (1,)
    assert tokenizer.encode('{"role": "user"}')[0] == 1


@pytest.mark.parametrize("content", [b"", b"{}", b'{"model": 3}', b"\x00\x01\x02 not a model"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.model"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"broken\.model: ") as caught:
        load_tokenizer(str(path))
    assert "\n" not in str(caught.value)


def test_unknown_names_and_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tokenizer 'gpt': no such name or file"):
        load_tokenizer("gpt")
    with pytest.raises(UserError, match="is a directory"):
        load_tokenizer(str(tmp_path))
