"""Texts into tokens, the numbers of words or of pieces of words.

A tokenizer has `context_length`, the tokens of a text with its start and its end, and is called with a list of texts;
what is shorter is filled up with the token of the end, which has the largest number. Nothing after the first end is
seen by a text tower.
"""

import re
from importlib.util import find_spec

import numpy as np

from tinyvit.text import did_you_mean, shorten


class Tokenizer:
    """A text as the tokens `start`, those of `encode`, which has `units` for them, and `end`."""

    units = "words"

    def __call__(self, texts):
        """The tokens (K, T), int64, of K texts; ValueError, with the text, for one that is too long."""
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts) or not len(texts):
            raise ValueError(f"expected a list of texts, got {shorten(repr(texts))}")
        tokens, most = np.full((len(texts), self.context_length), self.end, "int64"), self.context_length - 2
        for text, row in zip(texts, tokens):
            found = self.encode(text)
            if not found:
                raise ValueError(f"expected a text with words, got {shorten(repr(text))}")
            if len(found) > most:
                raise ValueError(f"the model reads texts of up to {most} {self.units}, and {shorten(repr(text))} has "
                                 f"{len(found)}; take a shorter one")  # fmt: skip
            row[0], row[1 : 1 + len(found)] = self.start, found
        return tokens


class WordTokenizer(Tokenizer):
    """Words by their places in a vocabulary; case and punctuation don't count.

    Raises ValueError, when called, for a text without words, with an unknown word, or too long.
    """

    def __init__(self, vocabulary, context_length):
        self.vocabulary, self.context_length = tuple(vocabulary), context_length
        self.numbers = {word: number for number, word in enumerate(self.vocabulary)}
        self.start, self.end = len(self.vocabulary), len(self.vocabulary) + 1

    def encode(self, text):
        words = words_of(text)
        for word in words:
            if word not in self.numbers:
                raise ValueError(f"the model doesn't know the word {shorten(repr(word))} in {shorten(repr(text))}; "
                                 f"{did_you_mean(word, self.vocabulary)}")  # fmt: skip
        return [self.numbers[word] for word in words]


def words_of(text):
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


def vocabulary_of(texts):
    """The words of some texts, each once, in alphabetical order."""
    return tuple(sorted({word for text in texts for word in words_of(text)}))


class BytePairTokenizer(Tokenizer):
    """CLIP's own: pieces of words that are frequent, byte pair by byte pair, by the library `tokenizers`.

    path         a tokenizer.json, as Hugging Face's models have it
    vocab_size   of the model; the last token ends a text, the one before starts it

    Raises ValueError for a file that is none or of another vocabulary, and where the library is missing; and when
    called, for an empty text and one that is too long.
    """

    units = "pieces"

    def __init__(self, path, context_length, vocab_size):
        self.context_length, self.start, self.end = context_length, vocab_size - 2, vocab_size - 1
        self.tokenizer = load_tokenizer(path)
        size = self.tokenizer.get_vocab_size()
        if size != vocab_size:
            raise ValueError(f"{path} has {size:,} tokens, and the model {vocab_size:,}")

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids


def tokenizers_library():
    """The library `tokenizers`; ValueError if it is missing."""
    if find_spec("tokenizers") is None:
        raise ValueError("texts in CLIP's byte pairs need the library tokenizers: pip install 'tinyvit[tokenizers]'")
    import tokenizers

    return tokenizers


def load_tokenizer(path):
    """The library's tokenizer in a tokenizer.json, without padding and truncation of its own."""
    library = tokenizers_library()
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise ValueError(f"{path} is no tokenizer that can be read: {shorten(error)}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def from_vocabulary_and_merges(vocabulary, merges):
    """The library's tokenizer, as CLIP has it, from the files vocab.json and merges.txt of older folders.

    Lower case, spaces joined, words split off their punctuation, digits one by one; pieces at the end of a word end in
    </w>. Radford et al. 2021, section 2.4.
    """
    t = tokenizers_library()
    try:
        model = t.models.BPE.from_file(str(vocabulary), str(merges), unk_token="<|endoftext|>",
                                       end_of_word_suffix="</w>", fuse_unk=False)  # fmt: skip
    except Exception as error:
        raise ValueError(f"{vocabulary} and {merges} are no byte pairs that can be read: {shorten(error)}") from error
    tokenizer = t.Tokenizer(model)
    n, p = t.normalizers, t.pre_tokenizers
    tokenizer.normalizer = n.Sequence([n.NFC(), n.Replace(t.Regex(r"\s+"), " "), n.Lowercase()])
    pieces = t.Regex(r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+")
    tokenizer.pre_tokenizer = p.Sequence(
        [p.Split(pieces, behavior="removed", invert=True), p.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = t.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
    return tokenizer
