"""The command `python -m tinyvit.bench.gpu_report`."""

import argparse
import sys

from tinyvit.backend import as_device
from tinyvit.bench.gpu_report.report import PARTS, Settings, carry_out
from tinyvit.files import expanded

STEPS = ("tf32", "bfloat16", "float32")
LEFT_OUT, QUICK_STEPS = ("compare",), ("bfloat16",)  # of a quick report


def main(arguments=None):
    options = parse(arguments)
    try:
        device = "cpu" if options.dry_run else as_device(options.device or "cuda")
    except ValueError as error:
        refuse(error)
    if device == "cpu" and not options.dry_run:
        refuse("the report is about a GPU; --dry-run walks its code on the CPU")
    settings = Settings(
        device=device,
        dry_run=options.dry_run,
        parts=tuple(part for part in PARTS if getattr(options, part)),
        precisions=("float32",) if options.dry_run else tuple(options.precisions),
        batch_size=8 if options.dry_run else options.batch_size,
        minutes=options.minutes,
        train_precision="float32" if options.dry_run else options.train_precision,
        data_dir=options.data_dir,
        compile=options.compile,
        quick=options.quick,
    )
    folder = expanded(options.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        refuse(error)
    report = carry_out(settings, folder, show=lambda text: print(text, flush=True))
    print(f"\n{folder / 'gpu-report.json'} and {folder / 'gpu-report.txt'} are written")
    sys.exit(1 if any(part.get("problem") for part in report["parts"].values()) else 0)


def parse(arguments):
    parser = argparse.ArgumentParser("python -m tinyvit.bench.gpu_report", description=(
        "Run the GPU tests, compare NumPy with CuPy, time training steps against PyTorch, train the recipe cifar10, "
        "and write gpu-report.json and gpu-report.txt."
    ))  # fmt: skip
    parser.error = refuse
    parser.add_argument("--quick", action="store_true", help=(
        "about two minutes: no comparison, the tests with few examples, one precision, one epoch; what is given beside "
        "it is done all the same"
    ))  # fmt: skip
    for part, what in PARTS.items():
        parser.add_argument(f"--{part}", action=argparse.BooleanOptionalAction, help=what)
    parser.add_argument("--out", default="gpu-report", help="folder for the report (gpu-report)")
    parser.add_argument("--device", help="cuda, or cuda:1 and so on (cuda)")
    parser.add_argument("--precisions", nargs="+", choices=STEPS, help=(
        f"of the steps that are timed ({' '.join(STEPS)}; with --quick {' '.join(QUICK_STEPS)})"
    ))  # fmt: skip
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help=(
        "time PyTorch's steps under torch.compile, too, while half of the time is left"
    ))  # fmt: skip
    parser.add_argument("--batch-size", type=int, default=1024, help="images in a step that is timed (1024)")
    parser.add_argument("--minutes", type=float, help=(
        "for everything; the training gets what the other parts leave, and as many epochs as fit in it (9.5; with "
        "--quick 2)"
    ))  # fmt: skip
    parser.add_argument("--train-precision", default="bfloat16", choices=(*STEPS, "float16"), help="(bfloat16)")
    parser.add_argument("--data-dir", help="folder or archive with CIFAR-10; by default where tinyvit keeps it")
    parser.add_argument("--dry-run", action="store_true", help="the same code on the CPU, with little work")
    options = parser.parse_args(arguments)
    for name, usual, quick in (
        *((part, True, part not in LEFT_OUT) for part in PARTS),
        ("precisions", STEPS, QUICK_STEPS), ("minutes", 9.5, 2.0),
    ):  # fmt: skip
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else usual)
    if options.dry_run and options.device:
        refuse(f"--dry-run computes on the CPU; leave out --device {options.device}")
    if options.batch_size < 1:
        refuse(f"--batch-size must be at least 1, got {options.batch_size}")
    if not options.minutes > 0:
        refuse(f"--minutes must be positive, got {options.minutes}")
    return options


def refuse(message):
    """End as every command does: one line, exit status 2."""
    print(f"gpu_report: error: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
