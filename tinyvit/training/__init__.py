"""Training: configuration, the step, the loop, evaluation, features, and the folder that a run leaves behind."""

from tinyvit.training.config import AugmentConfig, OptimConfig, TrainConfig
from tinyvit.training.loop import resume, train
from tinyvit.training.presets import PRESETS, preset
from tinyvit.training.step import StepResult, train_step
from tinyvit.training.tasks import classification
from tinyvit.training.tasks.classification import evaluate
