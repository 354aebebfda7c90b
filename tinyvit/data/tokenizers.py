"""Texts into tokens, the numbers of words or of pieces of words.

A tokenizer has `context_length`, the tokens of a text with its start and its end, and is called with a list of texts;
what is shorter is filled up with the token of the end, which has the largest number. Nothing after the first end is
seen by a text tower.
"""

import re
from difflib import get_close_matches

import numpy as np

from tinyvit.text import short

MOST_WORDS = 40  # that a message lists


class WordTokenizer:
    """Words by their places in a vocabulary; case and punctuation don't count.

    Raises ValueError, when called, for a text without words, with an unknown word, or too long.
    """

    def __init__(self, vocabulary, context_length):
        self.vocabulary, self.context_length = tuple(vocabulary), context_length
        self.numbers = {word: number for number, word in enumerate(self.vocabulary)}
        self.start, self.end = len(self.vocabulary), len(self.vocabulary) + 1

    def __call__(self, texts):
        """The tokens (K, T), int64, of K texts."""
        return padded([self.encode(text) for text in as_texts(texts)], texts, self.context_length, self.end, "words")

    def encode(self, text):
        words = words_of(text)
        if not words:
            raise ValueError(f"expected a text with words, got {short(repr(text))}")
        for word in words:
            if word not in self.numbers:
                close = get_close_matches(word, self.vocabulary, n=1)
                known = ", ".join(self.vocabulary[:MOST_WORDS]) + ", …" * (len(self.vocabulary) > MOST_WORDS)
                hint = f"did you mean {close[0]!r}?" if close else f"it knows {known}"
                raise ValueError(f"the model doesn't know the word {short(repr(word))} in {short(repr(text))}; {hint}")
        return [self.start, *(self.numbers[word] for word in words), self.end]


def words_of(text):
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


def vocabulary_of(texts):
    """The words of some texts, each once, in alphabetical order."""
    return tuple(sorted({word for text in texts for word in words_of(text)}))


class BytePairTokenizer:
    """CLIP's own: pieces of words that are frequent, byte pair by byte pair, by the library `tokenizers`.

    path         a tokenizer.json, as Hugging Face's models have it
    vocab_size   of the model; the last token ends a text, the one before starts it

    Raises ValueError for a file that is none or of another vocabulary, and where the library is missing; and when
    called, for an empty text and one that is too long.
    """

    def __init__(self, path, context_length, vocab_size):
        self.context_length, self.start, self.end = context_length, vocab_size - 2, vocab_size - 1
        self.tokenizer = loaded(path)
        size = self.tokenizer.get_vocab_size()
        if size != vocab_size:
            raise ValueError(f"{path} has {size:,} tokens, and the model {vocab_size:,}")

    def __call__(self, texts):
        """The tokens (K, T), int64, of K texts."""
        return padded([self.encode(text) for text in as_texts(texts)], texts, self.context_length, self.end, "pieces")

    def encode(self, text):
        if not text.strip():
            raise ValueError(f"expected a text with words, got {short(repr(text))}")
        return [self.start, *self.tokenizer.encode(text, add_special_tokens=False).ids, self.end]


def tokenizers_library():
    """The library `tokenizers`; ValueError if it is missing."""
    try:
        import tokenizers
    except ImportError:
        raise ValueError(
            "texts in CLIP's byte pairs need the library tokenizers: pip install 'tinyvit[tokenizers]'"
        ) from None
    return tokenizers


def loaded(path):
    """The library's tokenizer in a tokenizer.json, without padding and truncation of its own."""
    try:
        tokenizer = tokenizers_library().Tokenizer.from_file(str(path))
    except ValueError:
        raise
    except Exception as error:  # the library raises Exception itself
        raise ValueError(f"{path} is no tokenizer that can be read: {short(error)}") from error
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
        raise ValueError(f"{vocabulary} and {merges} are no byte pairs that can be read: {short(error)}") from error
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


def as_texts(texts):
    """The texts as a list; ValueError unless they are some."""
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts) or not len(texts):
        raise ValueError(f"expected a list of texts, got {short(repr(texts))}")
    return list(texts)


def padded(rows, texts, length, end, units):
    """The tokens (K, T) of lists of tokens; ValueError, with the text, for one that is too long."""
    tokens = np.full((len(rows), length), end, "int64")
    for row, text, into in zip(rows, texts, tokens):
        if len(row) > length:
            raise ValueError(
                f"the model reads texts of up to {length - 2} {units}, and {short(repr(text))} has {len(row) - 2}; "
                "take a shorter one"
            )
        into[: len(row)] = row
    return tokens
