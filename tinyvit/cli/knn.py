"""tinyvit knn"""

from dataclasses import dataclass

from tinyvit.cli.parsing import parse, positional, say_why_no_gpu
from tinyvit.cli.probing import ProbingOptions, by_layer, load_subject, print_found


@dataclass(frozen=True)
class KnnOptions(ProbingOptions):
    """How well the nearest training images, by the cosine of a trained model's features, tell the classes of the test
    images: each of k neighbours votes with the weight exp(cosine/temperature), as in Wu et al. 2018."""

    k: int = 20
    """Neighbours that vote."""
    temperature: float = 0.07
    """The lower, the more the nearest of them count."""


def knn(rest):
    """tinyvit knn RUN"""
    run_path, rest = positional(rest, "a run folder first: tinyvit knn RUN …")
    options = parse(KnnOptions, rest, "tinyvit knn RUN")

    from tinyvit.training.feature_classifiers import check_votes, nearest_neighbours

    subject = load_subject(run_path, options)
    check_votes(len(subject.split.train), options.k, options.temperature)

    def classify(train, test):
        found = nearest_neighbours(train, test, k=options.k, temperature=options.temperature)
        return {"test_accuracy": found.accuracy}

    found = by_layer(subject, options, classify)
    print_found(subject, options, found, [], {"k": options.k, "temperature": options.temperature})
    say_why_no_gpu(subject.trained.why_not_gpu)
