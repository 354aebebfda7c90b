"""tinyvit match"""

import json
from dataclasses import dataclass
from typing import Annotated

from tinyvit.cli.model_options import FileOptions, Readable, computing
from tinyvit.cli.parsing import BadInput, parse, say_why_no_gpu, separate
from tinyvit.text import printable

BAR = 20  # characters for a probability of 1
USAGE = 'tinyvit match RUN IMAGE… --text "…" --text "…"'


def options_class():
    import tyro

    @dataclass(frozen=True, kw_only=True)
    class MatchOptions(FileOptions):
        """Which of some texts an image is most like, by a trained CLIP: zero-shot classification. IMAGE is a file that
        Pillow reads, or a folder, of which all images are taken. A file that can't be read is named on stderr and
        skipped; the exit status is then 2. With --json, one object a line for each image: {"image": path, "texts":
        [{"text": …, "probability": …}, …]}, in the order of the texts."""

        text: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
        """A text; give --text for each of them. The probabilities of an image's texts add up to 1."""
        template: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
        """A sentence with {} for the text, such as "a photo of a {}"; of several --template, the mean is taken."""

    return MatchOptions


def match(rest):
    """tinyvit match RUN IMAGE… --text "…" --text "…" """
    cls = options_class()
    arguments, rest = separate(rest, cls)
    options = parse(cls, rest, "tinyvit match RUN IMAGE…")
    if len(arguments) < 2 or "" in arguments:
        got = f"{' '.join(arguments)} and no image" if arguments else "nothing"
        raise BadInput(f"expected a run folder and images: {USAGE}, got {got}")
    if not options.text:
        raise BadInput(f"expected texts to match with: {USAGE}, got none")
    run_path, *paths = arguments

    from tinyvit.training.predict import BATCH
    from tinyvit.training.trained import load_trained, tokenizer_of
    from tinyvit.training.zero_shot import AS_IT_IS, text_vectors
    from tinyvit.training.zero_shot import match as matches

    trained = load_trained(run_path, options.device, options.best)
    tokenizer, readable = tokenizer_of(trained), Readable()
    show = show_json if options.json else show_text
    with computing(trained, options, BATCH):
        vectors = text_vectors(trained.model, tokenizer, options.text, options.template or AS_IT_IS)
        for found in readable.of(matches(trained.model, trained.preprocessing, vectors, paths, options.threads)):
            show(found.path, options.text, found.probabilities.tolist())
    if readable.others:
        return 2
    say_why_no_gpu(trained.why_not_gpu)
    return 0


def show_json(path, texts, probabilities):
    found = [{"text": text, "probability": p} for text, p in zip(texts, probabilities)]
    print(json.dumps({"image": str(path), "texts": found}, allow_nan=False))


def show_text(path, texts, probabilities):
    texts = [printable(text) for text in texts]
    width = max(map(len, texts))
    print(printable(path))
    for text, p in zip(texts, probabilities):
        print(f"  {text:<{width}}   {100 * p:6.2f} %  {'█' * round(BAR * p)}".rstrip())
