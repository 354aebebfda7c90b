"""tinyvit match"""

from dataclasses import dataclass

from tyro.conf import UseAppendAction

from tinyvit.cli.model_options import FileOptions, computing
from tinyvit.training.trained import tokenizer_of
from tinyvit.training.zero_shot import AS_IT_IS, match, text_vectors


@dataclass(frozen=True, kw_only=True)
class Match(FileOptions):
    """Which of some texts an image is most like, by a trained CLIP: zero-shot classification. IMAGE is a file that
    Pillow reads, or a folder, of which all images are taken. A file that can't be read is named on stderr and
    skipped; the exit status is then 2. With --json, one object a line for each image: {"image": path, "texts":
    [{"text": …, "probability": …}, …]}, in the order of the texts."""

    text: UseAppendAction[tuple[str, ...]] = ()
    """A text; give --text for each of them. The probabilities of an image's texts add up to 1."""
    template: UseAppendAction[tuple[str, ...]] = ()
    """A sentence with {} for the text, such as "a photo of a {}"; of several --template, the mean is taken."""

    def __call__(self):
        if not self.text:
            raise ValueError('expected texts to match with: tinyvit match RUN IMAGE… --text "…" --text "…", got none')
        trained = self.load()
        tokenizer = tokenizer_of(trained)
        with computing(trained, self):
            vectors = text_vectors(trained.model, tokenizer, self.text, self.template or AS_IT_IS)
            found = match(trained.model, trained.preprocessing, vectors, self.images, self.threads)
            named = (one if one.error else one._replace(result=[*zip(self.text, map(float, one.result))])
                     for one in found)  # fmt: skip
            return self.show_shares(named, "texts", "text")
