"""The tasks, one file each, and the registry of their names."""

from tinyvit.training.tasks.classification import Classification, classification
from tinyvit.training.tasks.task import NotFinite, Report, Task, register, task_class
