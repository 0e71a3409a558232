"""Model shapes: what KV, states and prefills of a model cost, by the paper's accounting or exactly."""

from marconi_sim.model.base import KINDS, Flops, Model, vary
from marconi_sim.model.exact import ExactModel
from marconi_sim.model.huggingface import read_config
from marconi_sim.model.load import ACCOUNTINGS, load_model, models
from marconi_sim.model.paper import PaperModel

__all__ = [
    "ACCOUNTINGS",
    "KINDS",
    "ExactModel",
    "Flops",
    "Model",
    "PaperModel",
    "load_model",
    "models",
    "read_config",
    "vary",
]
