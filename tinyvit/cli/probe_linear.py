"""tinyvit probe-linear"""

from dataclasses import dataclass

from tinyvit.cli.parsing import parse, positional, say_why_no_gpu
from tinyvit.cli.probing import ProbingOptions, by_layer, load_subject, print_found


@dataclass(frozen=True)
class ProbeLinearOptions(ProbingOptions):
    """How well logistic regression tells classes apart by a trained model's features, which stay as they are: the
    accuracy on the test images."""

    C: float | None = None
    """Inverse strength of the L2 regularisation; by default the best of several on a fifth of the training
    images."""


def probe_linear(rest):
    """tinyvit probe-linear RUN"""
    run_path, rest = positional(rest, "a run folder first: tinyvit probe-linear RUN …")
    options = parse(ProbeLinearOptions, rest, "tinyvit probe-linear RUN")

    from tinyvit.training.feature_classifiers import check_strength, held_out, linear_probe

    if options.C is not None:
        check_strength(options.C)
    subject = load_subject(run_path, options)
    if options.C is None:
        held_out(subject.split.train.labels, options.seed)  # raises before minutes are spent

    def classify(train, test):
        probe = linear_probe(train, test, C=options.C, seed=options.seed)
        tried = [{"C": C, "accuracy": accuracy} for C, accuracy in probe.tried]
        return {"test_accuracy": probe.accuracy, "C": probe.C, "tried": tried}

    found = by_layer(subject, options, classify)
    held = [("held out for C", held_out_accuracy)] if options.C is None else []
    print_found(subject, options, found, [("C", lambda row: f"{row['C']:g}"), *held], {})
    say_why_no_gpu(subject.trained.why_not_gpu)


def held_out_accuracy(row):
    """The accuracy of a layer's probe where its C was chosen."""
    from tinyvit.training.display import percent

    return percent(next(trial["accuracy"] for trial in row["tried"] if trial["C"] == row["C"]))
