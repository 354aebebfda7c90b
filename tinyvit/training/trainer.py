"""The state of a training, and its work before and after each step."""

import hashlib
import math
import time
import warnings
from collections import defaultdict
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from tinyvit import data, optim
from tinyvit.arrays import array_module
from tinyvit.backend import to_device
from tinyvit.data.resize import shrink
from tinyvit.functional.patches import as_pair
from tinyvit.keys import Key
from tinyvit.levels import level
from tinyvit.models.architecture import image_shape
from tinyvit.models.summary import activation_bytes
from tinyvit.nn import Context
from tinyvit.nn.precision import check_precision, fastest_precision
from tinyvit.optim.optimizers import SCALE_STATE
from tinyvit.training.config import check_device_options, why_no_graph
from tinyvit.training.datasets import check_fit, load_split, with_absolute_paths
from tinyvit.training.distributed import SINGLE_PROCESS
from tinyvit.training.divergence import Diverged, Faults, all_finite, explain, where_first
from tinyvit.training.memory import available_memory
from tinyvit.training.memory_needs import MEASURED_BYTES, is_ample, needs_of_step, needs_of_weights, require_memory
from tinyvit.training.step import CaptureError
from tinyvit.training.tasks import task_class
from tinyvit.training.threads import map_threads, thread_count


class Trainer:
    """A model while it trains, as a `TrainConfig` says.

    step, epoch, batch   how many were finished; `batch` of the current epoch
    history              a row (a dict) per evaluation
    task                 the `Task`, through which alone the trainer knows what is learned
    model                what the task builds
    seconds              of training before this process took over
    largest              how many samples this rank's largest batch has
    wait                 [seconds that batches were waited for, seconds of the steps between them]. On a GPU a batch is
                         there as soon as its computation is queued; evaluations and the checkpoints after them count
                         as neither
    kernels              the level that operations run at: that of the `tinyvit.kernels.using` around it
    graphs               a `cuda_graph.StepGraphs`, if steps are replayed
    data_digest          a checksum of the training data
    sums                 over the current epoch of the loss, the task's metrics, and the steps, on the device

    fresh   whether to load the weights that config.init names; False if `restore` follows
    ranks   `distributed.ranks.Ranks` that each train a part of every batch, or `SINGLE_PROCESS`

    Raises ValueError for data that can't be read or don't fit the model, for weights that can't be taken over, and for
    TensorBoard where tensorboardX is not installed; OutOfMemory where a step surely needs more memory than there is.
    """

    def __init__(self, config, fresh=True, ranks=SINGLE_PROCESS):
        config, self.ranks = with_absolute_paths(config), ranks
        self.split = load_split(config)
        if task_class(config.task).needs_classes and (config.dataset == "folder" or config.classes or config.init.run):
            classes = len(self.split.train.classes)  # the data say how many
            config = replace(config, model=replace(config.model, num_classes=classes))
        self.kernels = level()
        self.device, self.why_not_gpu = ranks.device(config.device)
        self.is_auto = config.precision == "auto" and self.kernels != "reference"
        if config.precision == "auto":  # config.json says what it became
            config = replace(config, precision=fastest_precision(self.device) if self.is_auto else "float32")
        self.config, o = config, config.optim
        check_fit(config, self.split.train)
        check_device_options(config, self.device, ranks.size, self.kernels)
        check_precision(config.precision, self.device, self.why_not_gpu)
        if config.tensorboard:
            from tinyvit.training.tensorboard import summary_writer

            summary_writer()
        self.threads = thread_count(config.threads)
        free = ranks.share(available_memory(self.device), self.device)
        require_memory(needs_of_weights(config, self.device), config.batch_size, free)
        self.task = task_class(config.task)(config)
        if ranks.size > 1 and self.task.mixes_samples and not self.task.gathers:
            raise ValueError(f"the task {config.task!r} doesn't gather samples from other ranks; take one process")
        self.model = self.task.build(config.seed, self.device, config.precision)
        backbone = self.task.backbone(self.model)
        if fresh and config.init.run:
            from tinyvit.training.finetune import take_over

            self.config = replace(config, init=take_over(backbone, config.init))
        if fresh and config.init.whiten:
            from tinyvit.training.whitening import whiten

            whiten(backbone, self.split.train)
        if config.freeze is not None:
            from tinyvit.training.freezing import freeze_parts, frozen_parts

            self.task.frozen = frozen_parts(config.freeze, backbone)
            freeze_parts(backbone, self.task.frozen)
        optim.layerwise_decay(backbone, o.layer_decay)
        self.optimizer = make_optimizer(self.model, o, self.threads)
        self.ema = None if o.ema is None else optim.EMA(self.model, o.ema)
        self.loader = data.Loader(
            self.split.train, config.batch_size, shuffle=True, augment=config.augment,
            seed=config.seed, dtype=self.model.dtype.name, device=self.device,
            part=None if ranks.size == 1 else lambda samples: ranks.part(samples).where,
        )  # fmt: skip
        smallest = min(end - begin for begin, end in pairwise(self.loader.edges))
        if smallest < ranks.size:
            raise ValueError(
                f"a batch of {smallest} image{'s' * (smallest > 1)} can't be shared by {ranks.size} ranks; start "
                "fewer, or take more images or a larger --batch-size"
            )
        self.total_steps = config.epochs * len(self.loader)
        self.task.begin(self.model, self.total_steps, self.split.train)
        self.largest = -(-max(end - begin for begin, end in pairwise(self.loader.edges)) // ranks.size)
        if self.device != "cpu" or not is_ample(free, backbone, self.largest, self.threads):
            require_memory(self.memory_needs(), self.largest, free)
        self.step = self.epoch = self.batch = 0
        self.history, self.seconds = [], 0.0
        self.faults, self.wait = Faults(), [0.0, 0.0]
        self.reset_sums()
        self.data_digest = digest_of(self.split.train)
        self.graphs, self.why_no_graph = None, why_no_graph(config, self.device, ranks.size, self.kernels)
        if config.cuda_graph and not self.why_no_graph:
            from tinyvit.training.cuda_graph import StepGraphs

            with self.model.storage.on_device():
                self.graphs = StepGraphs(self.device)

    def memory_needs(self):
        """The `Needs` of the last step, which has the largest images and the most patches."""
        config, last = self.config, self.total_steps - 1
        key, train = Key(config.seed, last), self.split.train
        samples = max(2, min(self.largest, MEASURED_BYTES // activation_bytes(self.task.backbone(self.model), 1)))
        images = np.zeros((samples, *image_shape(config.model)[:-2], *self.image_size(last)), self.model.dtype)
        labels = np.resize(train.labels, (samples, *train.labels.shape[1:]))
        arrays = (to_device(x, self.device) for x in (images, labels))

        kept = sum(array.nbytes for array in self.task.state().values())
        if self.ema is not None:
            kept += self.model.storage.data.nbytes
        return needs_of_step(
            self.model, self.optimizer, self.task.loss, self.task.batch(*arrays, key),
            Context(True, key, recompute=config.recompute), 1 if self.task.mixes_samples else self.threads,
            config.optim.accumulate, kept, self.split,
        )  # fmt: skip

    def reset_sums(self):
        with self.model.storage.on_device():
            self.sums = array_module(self.model.storage.data).zeros(2 + len(self.task.metrics), "float64")

    @property
    def finished(self):
        return self.epoch == self.config.epochs

    def batches(self):
        """The rest of the current epoch; the waits for batches are added up."""
        with closing(self.loader.epoch(self.epoch, start=self.batch)) as batches:
            asked = time.perf_counter()
            for batch in batches:
                had = time.perf_counter()
                self.wait[0] += had - asked
                yield batch
                asked = time.perf_counter()
                self.wait[1] += asked - had

    @property
    def data_wait(self):
        """Share (0 to 1) of the training's time that batches were waited for."""
        return self.wait[0] / sum(self.wait) if any(self.wait) else 0.0

    @property
    def batch_images(self):
        """Images of the current batch, in all ranks."""
        return self.loader.edges[self.batch + 1] - self.loader.edges[self.batch]

    def next_step(self, images, targets):
        """The arguments of `train_step` for the next step, on a batch of the loader."""
        o, key, part = self.config.optim, Key(self.config.seed, self.step), self.ranks.part(self.batch_images)
        if part is not None:
            key = key.skip(part.where.start)
        self.optimizer.lr = o.lr * self.schedule(self.step)
        self.task.before_step(self.model, self.optimizer, self.step)
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "images": self.task.batch(shrink(images, self.image_size(self.step)), targets, key),
            "targets": None,
            "ctx": Context(training=True, key=key, recompute=self.config.recompute),
            "objective": self.task.loss,
            "clip_norm": o.clip_norm,
            "clip_each": o.clip_each,
            "accumulate": o.accumulate,
            "threads": self.config.threads,
            "part": part,
            "replay": self.graphs and self.replay,
        }

    def replay(self, function, batch, ctx):
        """function(batch, ctx) as a CUDA graph. Without one from where it can't be captured, or memory is too short for
        it, unless it was asked for."""
        try:
            return self.graphs.run(self.task.graph_of(self.step), function, batch, ctx)
        except (CaptureError, MemoryError) as error:
            if self.config.cuda_graph is True:
                raise
            warnings.warn(f"{error}; from here on kernels are launched one by one", stacklevel=2)
        self.graphs = None
        return function(batch, ctx)

    def finish_step(self, step, result):
        """Count a step, with the arguments that it had and its result; raises Diverged if too many were skipped."""
        if self.faults.saw(result):
            batch, ctx, lr = step["images"], step["ctx"], self.optimizer.lr
            found = self.ranks.gather(explain(self.model, batch, ctx, self.task.loss, lr, self.config))
            raise Diverged(min(found, key=lambda text: "everything is finite" in text))  # as it is in a rank's part
        if self.ema is not None:
            self.ema.update(result.applied)
        self.task.after_step(self.model, self.step, result.applied)
        xp = array_module(self.sums)
        metrics = [result.metrics[name] for name in self.task.metrics]
        news = xp.stack([result.loss, *metrics, xp.ones_like(result.loss)]).astype("float64")
        self.sums += xp.where(result.applied, news, 0.0)
        self.step, self.batch = self.step + 1, self.batch + 1

    def schedule(self, step):
        """The factor of the learning rate at a step."""
        o = self.config.optim
        return optim.SCHEDULES[o.schedule](step, self.total_steps, round(o.warmup * self.total_steps))

    def image_size(self, step):
        """Height and width of the images that a step sees."""
        o = self.config.optim
        for side, until in zip(o.small_sizes, o.small_until):
            if step < until * self.total_steps:
                return side, side
        return as_pair(self.config.model.img_size)

    def end_epoch(self):
        """Begin the next epoch."""
        self.epoch, self.batch = self.epoch + 1, 0
        self.reset_sums()

    def evaluate(self, stop=None):
        """The scores of the task, of the moving average of the weights if there is one; None if `stop` became true.

        Raises Diverged if one is NaN or infinite.
        """
        with self.ema_weights(), self.ranks.sharing():
            scores = self.task.evaluate(self.model, self.split.test, self.config.threads, stop)
            if scores is None and stop:
                return None
            scores = {name: float(score) for name, score in scores.items()}
            wrong = [name for name in scores if not math.isfinite(scores[name])]
            if not wrong:
                return scores
        raise Diverged(
            f"the {wrong[0].replace('_', ' ')} is NaN or infinite after epoch {self.epoch + 1}, in which the "
            f"learning rate was {self.optimizer.lr:.2g}: take a lower optim.lr"
        )

    def row(self, scores, seconds):
        """The metrics of the epoch that has just ended."""
        *sums, steps = (float(total) for total in self.sums)
        means = [total / steps if steps else None for total in sums]
        return {
            "epoch": self.epoch + 1,
            "step": self.step,
            "lr": self.config.optim.lr * self.schedule(self.step - 1),
            **{f"train_{name}": mean for name, mean in zip(("loss", *self.task.metrics), means)},
            **scores,
            "skipped_steps": int(self.faults.skipped),
            "data_wait": self.data_wait,
            "seconds": seconds,
        }

    def ema_weights(self):
        """Inside this the weights are their moving average (EMA), if there is one: it is evaluated and saved."""
        return self.ema.apply() if self.ema is not None else nullcontext()

    def weights(self):
        """A copy of the weights, or of their moving average if there is one, by name."""
        with self.ema_weights():
            return self.model.state_dict()

    # -- stopping and going on ------------------------------------------------------------------------------------

    def state(self, seconds):
        """(tensors, about): everything besides the configuration that the next step depends on.

        Raises Diverged if a weight is NaN or infinite: such a model can't be trained any further.
        """
        if not all_finite(self.model.storage.data):
            where = where_first(self.model, {}, None, None)
            raise Diverged(f"after step {self.step} {where}; take a lower optim.lr")
        tensors = self.tensors()
        about = {
            "step": self.step,
            "epoch": self.epoch,
            "batch": self.batch,
            "skipped_steps": int(self.faults.skipped),
            "streak": int(self.faults.streak),
            "seconds": seconds,
            "data_wait": self.wait,
            "data": self.data_digest,
            "history": self.history,
        }
        if self.ranks.size > 1:
            from tinyvit.training.distributed.agreement import check_same, digests

            check_same(self.ranks, digests(tensors), f"after step {self.step} ")
        return tensors, about

    def tensors(self):
        """The arrays that a checkpoint holds, as "part.name"."""
        parts = {"model": self.model, "optimizer": self.optimizer, "ema": self.ema}
        parts = {part: whole.state_dict() for part, whole in parts.items() if whole is not None}
        parts |= {"epoch": {"sums": self.sums}, "task": self.task.state()}
        return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def check_ranks(self):
        """Raise ValueError unless all ranks are about to train the same."""
        if self.ranks.size > 1:
            from tinyvit.training.distributed.agreement import check_same, facts_of

            data = {"training": self.data_digest, "evaluated": digest_of(self.split.test)}
            check_same(self.ranks, facts_of(self.config, self.kernels, data))

    def restore(self, tensors, about):
        """Restore what `state` returned; raises ValueError for another configuration or other data."""
        if about["data"] != self.data_digest:
            raise ValueError(
                f"{self.config.dataset} holds other training images or classes than those that the run began with; "
                "give the folder or file that it began with by --data-dir, or start a new run"
            )
        own = self.tensors()
        of_float16 = {f"optimizer.{part}" for part in SCALE_STATE}  # which other precisions go on without
        for name in sorted((tensors.keys() | own.keys()) - of_float16):
            found, expected = (describe_array(arrays.get(name)) for arrays in (tensors, own))
            if found != expected:
                raise ValueError(
                    f"the checkpoint and config.json disagree: it holds {found} for {name}, and expected is {expected}"
                )
        parts = defaultdict(dict)
        for name, array in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = array
        self.model.load_state_dict(parts["model"])
        self.optimizer.load_state_dict(parts["optimizer"])
        if self.ema is not None:
            self.ema.load_state_dict(parts["ema"])
        self.task.load_state(parts["task"])
        self.sums = to_device(parts["epoch"]["sums"].copy(), self.device)
        self.step, self.epoch, self.batch = about["step"], about["epoch"], about["batch"]
        self.history, self.seconds = list(about["history"]), about["seconds"]
        self.faults = Faults(about["skipped_steps"], about["streak"])
        self.wait = about["data_wait"]
        places = self.epoch * len(self.loader) + self.batch
        if not 0 <= self.batch <= len(self.loader) or not self.step == places <= self.total_steps:
            raise ValueError(
                f"the checkpoint stands at step {self.step}, epoch {self.epoch}, batch {self.batch}, which doesn't fit "
                f"config.json and the data with their {len(self.loader)} batches an epoch"
            )


def digest_of(dataset):
    """A checksum of a `Dataset`'s images, labels and classes, in this order."""
    digest = hashlib.sha256(repr((dataset.classes, dataset.images.shape)).encode())
    for array in (*dataset.images, dataset.labels):
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def describe_array(array):
    """The dtype and shape of an array of a checkpoint, or that there is none."""
    return "nothing" if array is None else f"{array.dtype} {array.shape}"


def make_optimizer(model, o, threads):
    """The optimizer of an `OptimConfig`."""
    if o.name == "sgd":
        return optim.SGD(model, o.lr, o.momentum, o.nesterov, o.weight_decay)
    if o.name == "adagrad":
        return optim.Adagrad(model, o.lr, weight_decay=o.weight_decay)
    if o.name == "adam":
        return optim.Adam(model, o.lr, o.betas)
    if o.name == "muon":
        return optim.Muon(
            model, o.lr, weight_decay=o.weight_decay, adam_lr=o.adam_lr, betas=o.betas, filter_lr=o.filter_lr,
            map_pieces=partial(map_threads, threads=threads, device=model.device),
        )  # fmt: skip
    return optim.AdamW(model, o.lr, o.betas, weight_decay=o.weight_decay)
