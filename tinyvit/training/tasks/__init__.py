"""The tasks, one file each, and the registry of their names."""

from tinyvit.training.tasks.classification import Classification, classification
from tinyvit.training.tasks.clip import ContrastivePairs
from tinyvit.training.tasks.diffusion import Diffusion
from tinyvit.training.tasks.dino import SelfDistillation
from tinyvit.training.tasks.distillation import Distillation
from tinyvit.training.tasks.mae import MaskedAutoencoding
from tinyvit.training.tasks.masked_patches import MaskedPatchPrediction
from tinyvit.training.tasks.task import NotFinite, Report, Task, register, task_class
