"""Optimizers, schedules, clipping and averaging, all on a model's flat arrays."""

from tinyvit.optim.clipping import clip_by_each_norm, clip_by_global_norm, global_norm
from tinyvit.optim.ema import EMA
from tinyvit.optim.layer_decay import layerwise_decay
from tinyvit.optim.loss_scale import LossScale
from tinyvit.optim.muon import Muon
from tinyvit.optim.optimizers import SGD, Adagrad, Adam, AdamW, Optimizer
from tinyvit.optim.schedules import SCHEDULES, warmup_constant, warmup_cosine, warmup_linear, warmup_one_cycle
