"""Training: configuration, the step, the loop, evaluation, and the folder that a run leaves behind."""

from tinyvit.training.config import AugmentConfig, OptimConfig, TrainConfig
from tinyvit.training.evaluate import evaluate
from tinyvit.training.loop import resume, train
from tinyvit.training.objectives import classification
from tinyvit.training.presets import PRESETS, preset
from tinyvit.training.step import StepResult, train_step
