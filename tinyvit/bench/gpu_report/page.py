"""The report as text for a terminal of 120 columns."""

from contextlib import suppress

from tinyvit.bench.table import duration, size

NAMES = {"tinyvit": "tinyvit", "graph": "a CUDA graph", "torch": "PyTorch eager", "compile": "torch.compile"}


def text(report):
    """The whole report."""
    return "\n".join([heading(report), *(part(name, result) for name, result in report["parts"].items())]) + "\n"


def heading(report):
    card, settings = report["card"], report["settings"]
    lines = ["tinyvit on a GPU" if card["card"] else "a dry run on the CPU, whose figures mean nothing"]
    if card["card"]:
        lines.append(f"  card      {card['card']}, compute capability {card['compute_capability']}, "
                     f"{size(card['memory_bytes'])}, {size(card['free_bytes'])} free")  # fmt: skip
        lines.append(f"  driver    {card['driver'] or 'unknown'}, CUDA {card['cuda_driver']}; "
                     f"runtime {card['cuda_runtime']}")  # fmt: skip
    versions = {"tinyvit": "tinyvit", "numpy": "NumPy", "cupy": "CuPy", "torch": "PyTorch", "python": "Python"}
    said = ", ".join(f"{title} {card[name]}" for name, title in versions.items() if card.get(name))
    lines.append(f"  versions  {said}; device {settings['device']}")
    return "\n".join(lines)


def part(name, result):
    """One part: its results, then its error."""
    shown = {"tests": tests, "compare": compare, "steps": steps, "train": train}[name]
    lines = [f"\n{name}, {result['seconds']:.0f} s"]
    with suppress(KeyError):  # where it ended before there was anything to show
        lines += shown(result)
    if result.get("problem"):
        lines.append(f"  problem: {result['problem']}")
        lines += [f"    {line}" for line in result.get("tail", [])]
    return "\n".join(lines)


def tests(result):
    return [f"  {result['passed']} passed, {result['failed']} failed"]


def compare(result):
    rows = [*result["operations"], *result["models"]]
    lines = ["  NumPy in float32 against the device: the largest difference, of the largest number"]
    for precision in dict.fromkeys(row["precision"] for row in rows):
        own = [row for row in rows if row["precision"] == precision]
        worst = sorted(own, key=lambda row: -(float("inf") if row["error"] is None else row["error"]))
        bound = f"bound {own[0]['bound']:g}" if own[0]["bound"] else "no bound"
        furthest = ", ".join(f"{row['name']} {error(row['error'])}" for row in worst[:3])
        right = f"{sum(row['ok'] for row in own)} of {len(own)}"
        lines.append(f"  {precision:<9} {right}, {bound}; the furthest: {furthest}")
        lines += [f"    {row['name']}: {error(row['error'])}, worst in {row['worst']}, logits {error(row['logits'])}"
                  for row in own if "worst" in row]  # fmt: skip
    lines += [f"  {row['name']}, {row['precision']}: {'the same bits' if row['ok'] else 'OTHER BITS'}"
              for row in result["twice"]]  # fmt: skip
    return lines


def error(size):
    return "not a number" if size is None else f"{size:.1e}"


def steps(result):
    best = result["ceilings"]
    rates = ", ".join(f"{rate / 1e12:,.1f} Tflop/s in {name}" for name, rate in best["operations_per_second"].items())
    lines = [f"  {result['case']}", f"  at best   {best['bytes_per_second'] / 1e12:.2f} TB/s copied; {rates}"]
    for row in result["steps"]:
        shares = [f"{100 * share:.0f} % of the best {what}" for what, share in
                  (("rate of products", row["of_best_rate"]), ("copy", row["of_copy_bandwidth"])) if share]  # fmt: skip
        lines.append(f"  {row['precision']}: {', '.join(shares)}; queued in {duration(row['host_seconds'])}")
        for name, seconds in row["seconds"].items():
            ratio = f", {row['ratio'][name]:.2f} × tinyvit's time" if name in row["ratio"] else ""
            images = f"{row['images_per_second'][name]:>9,.0f} images/s"
            lines.append(f"    {NAMES[name]:<14} {duration(seconds):>9}  {images}{ratio}")
        lines += [f"    {NAMES[name]:<14} left out: {why}" for name, why in row["left_out"].items()]
        if row["late"]:
            lines.append(f"    the card waited for Python {row['late']} times: times of kernels contain gaps")
        if row["kernels"]:
            lines.append(f"    {'kernel':<44} {'launches':>9} {'time':>10} {'of step':>8} {'TB/s':>8} {'Tflop/s':>8}")
        for kernel in row["kernels"]:
            share = 100 * kernel["seconds"] / row["seconds"]["tinyvit"]
            speed, rate = ((kernel[what] / kernel["seconds"] / 1e12 if kernel["seconds"] else 0.0)
                           for what in ("bytes", "operations"))  # fmt: skip
            lines.append(f"    {kernel['name']:<44} {kernel['launches']:>9} {duration(kernel['seconds']):>10} "
                         f"{share:>7.1f}% {speed:>8.2f} {rate or '':>8{'.1f' if rate else ''}}".rstrip())  # fmt: skip
    return lines


def train(result):
    lines = [
        f"  {result['epochs']} epochs (the recipe has {result['epochs_of_the_recipe']}) in {result['precision']}, "
        f"batch {result['batch_size']}, {result['parameters']:,} parameters",
        f"  {100 * result['test_accuracy']:.2f} % of the test images after {duration(result['training_seconds'])}, "
        f"{result['images_per_second']:,.0f} images/s with augmentation and evaluations",
    ]
    lines += [f"    epoch {row['epoch']:>4}  {100 * row['test_accuracy']:.2f} %  loss {row['test_loss']:.4f}  "
              f"{row['seconds']:.0f} s" for row in result["history"]]  # fmt: skip
    return lines
