"""tinyvit match"""

import json
from dataclasses import dataclass

from tyro.conf import UseAppendAction

from tinyvit.cli.model_options import FileOptions, Readable, computing, print_shares
from tinyvit.cli.parsing import parse
from tinyvit.training.trained import tokenizer_of
from tinyvit.training.zero_shot import AS_IT_IS, text_vectors
from tinyvit.training.zero_shot import match as matches


@dataclass(frozen=True, kw_only=True)
class MatchOptions(FileOptions):
    """Which of some texts an image is most like, by a trained CLIP: zero-shot classification. IMAGE is a file that
    Pillow reads, or a folder, of which all images are taken. A file that can't be read is named on stderr and
    skipped; the exit status is then 2. With --json, one object a line for each image: {"image": path, "texts":
    [{"text": …, "probability": …}, …]}, in the order of the texts."""

    text: UseAppendAction[tuple[str, ...]] = ()
    """A text; give --text for each of them. The probabilities of an image's texts add up to 1."""
    template: UseAppendAction[tuple[str, ...]] = ()
    """A sentence with {} for the text, such as "a photo of a {}"; of several --template, the mean is taken."""


def match(rest):
    """tinyvit match RUN IMAGE… --text "…" --text "…" """
    options = parse(MatchOptions, rest, "tinyvit match")
    if not options.text:
        raise ValueError('expected texts to match with: tinyvit match RUN IMAGE… --text "…" --text "…", got none')

    trained, readable = options.load(), Readable()
    tokenizer, threads = tokenizer_of(trained), options.threads
    with computing(trained, options):
        vectors = text_vectors(trained.model, tokenizer, options.text, options.template or AS_IT_IS)
        for found in readable.of(matches(trained.model, trained.preprocessing, vectors, options.images, threads)):
            shares = list(zip(options.text, found.probabilities.tolist()))
            if options.json:
                texts = [{"text": text, "probability": probability} for text, probability in shares]
                print(json.dumps({"image": str(found.path), "texts": texts}, allow_nan=False))
            else:
                print_shares(found.path, shares)
    return 2 if readable.others else 0
