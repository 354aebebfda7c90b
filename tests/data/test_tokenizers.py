"""Texts into tokens, by words; byte pairs are tested against Transformers in tests/parity."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit.data.tokenizers import BytePairTokenizer, WordTokenizer, vocabulary_of

WORDS = ("a", "red", "seven", "blue")
TOKENIZER = WordTokenizer(WORDS, 6)


def test_a_text_has_its_start_its_words_and_is_filled_up_with_ends():
    np.testing.assert_array_equal(TOKENIZER(["a red seven", "blue"]), [[4, 0, 1, 2, 5, 5], [4, 3, 5, 5, 5, 5]])
    assert TOKENIZER(["a"]).dtype == "int64"


def test_case_punctuation_and_spaces_do_not_count():
    np.testing.assert_array_equal(TOKENIZER(["  A RED,\tseven. "]), TOKENIZER(["a red seven"]))


@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_end_is_the_largest_token_and_the_words_can_be_read_back(texts):
    tokens = TOKENIZER([" ".join(words) for words in texts])
    for row, words in zip(tokens, texts):
        assert [WORDS[token] for token in row[1 : row.argmax()]] == words


@pytest.mark.parametrize("texts, message", [
    (["a red dog"], "the model doesn't know the word 'dog' in 'a red dog'; expected one of a, red, seven, blue"),
    (["a rad seven"], "the word 'rad' in 'a rad seven'; did you mean red?"),
    (["a a red red seven"], "texts of up to 4 words, and 'a a red red seven' has 5; take a shorter one"),
    ([""], "expected a text with words, got ''"),
    (["…!"], "expected a text with words, got '…!'"),
    ("a red", "expected a list of texts, got 'a red'"),
    ([], r"expected a list of texts, got \[\]"),
    ([7], r"expected a list of texts, got \[7\]"),
])  # fmt: skip
def test_texts_that_can_not_be_read_are_refused(texts, message):
    with pytest.raises(ValueError, match=message):
        TOKENIZER(texts)


def test_a_vocabulary_has_each_word_once_in_alphabetical_order():
    assert vocabulary_of(["A red seven.", "the red one"]) == ("a", "one", "red", "seven", "the")


def test_without_the_library_byte_pairs_are_refused_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"pip install 'tinyvit\[tokenizers\]'"):
        BytePairTokenizer(tmp_path / "tokenizer.json", 8, 20)
