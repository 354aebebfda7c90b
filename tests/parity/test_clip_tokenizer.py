"""CLIP's byte pairs, through the library tokenizers, against Transformers' CLIPTokenizer with a small vocabulary."""

import json

import numpy as np
import pytest
from transformers import CLIPTokenizer
from transformers.utils import logging

from tinyvit.cli.import_weights import tokenizer_in
from tinyvit.data.tokenizers import BytePairTokenizer, from_vocabulary_and_merges

pytestmark = pytest.mark.parity
logging.disable_progress_bar()

MERGES = ["c a", "ca t</w>", "d o", "do g</w>", "a </w>", "o f</w>", "p h", "ph o", "t o</w>"]
TEXTS = ["a photo of a cat", "A  DOG's  cat, 12 dogs!", "ça", "it's <3", "cat\n\tdog"]


@pytest.fixture
def folder(tmp_path):
    """vocab.json and merges.txt of CLIP's kind: all bytes, alone and at a word's end, then the merged ones."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = list(bytes_to_unicode().values())
    pieces = letters + [f"{letter}</w>" for letter in letters]
    pieces += [piece for piece in (merge.replace(" ", "") for merge in MERGES) if piece not in pieces]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    merges = [merge for merge in MERGES if merge.replace(" ", "") not in letters and merge != "a </w>"]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    return tmp_path, len(pieces)


def test_tokens_are_those_of_transformers_from_either_kind_of_file(folder):
    path, size = folder
    theirs = CLIPTokenizer.from_pretrained(str(path))
    theirs.save_pretrained(str(path / "saved"))
    (path / "made.json").write_bytes(tokenizer_in(path))
    for file in (path / "saved" / "tokenizer.json", path / "made.json"):
        tokens = BytePairTokenizer(file, 40, size)(TEXTS)
        for row, text in zip(tokens, TEXTS):
            expected = theirs(text)["input_ids"]
            np.testing.assert_array_equal(row[: len(expected)], expected)
            assert (row[len(expected) :] == size - 1).all() and row.argmax() == len(expected) - 1


def test_what_can_not_be_read_is_refused(folder):
    path, size = folder
    made = path / "tokenizer.json"
    made.write_bytes(tokenizer_in(path))
    with pytest.raises(ValueError, match=f"has {size:,} tokens, and the model 49,408"):
        BytePairTokenizer(made, 77, 49408)
    tokenizer = BytePairTokenizer(made, 5, size)
    with pytest.raises(ValueError, match="texts of up to 3 pieces, and 'a photo of a cat' has"):
        tokenizer(["a photo of a cat"])
    with pytest.raises(ValueError, match="expected a text with words, got '  '"):
        tokenizer(["  "])
    for content in ("{}", "no JSON"):
        made.write_text(content)
        with pytest.raises(ValueError, match=r"tokenizer\.json is no tokenizer that can be read: "):
            BytePairTokenizer(made, 5, size)
    with pytest.raises(ValueError, match="are no byte pairs that can be read: "):
        from_vocabulary_and_merges(path / "missing.json", path / "merges.txt")
