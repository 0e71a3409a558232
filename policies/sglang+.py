"""SGLang with Marconi's admission: the paper's stronger baseline (section 5.1)."""

from marconi_sim.policy import RadixPolicy


class SGLangPlus(RadixPolicy):
    """Checkpoints where marconi does; evicts the least recently used leaf, and a touch refreshes the whole path."""

    published = True
    evicts = "leaves"
    touches = "path"
    normalised = False
