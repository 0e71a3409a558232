"""What the configurations of the families with Mamba layers mean, after the code of transformers 5.24."""

from __future__ import annotations

from marconi_sim.model.config import FULL, LINEAR, Config
from marconi_sim.model.family_parts import Parts, attention, mlp
from marconi_sim.model.layers import MLP, Attention, Layers, MoE
from marconi_sim.model.recurrent import Mamba1, Mamba2


def _expanded(config: Config) -> int:
    return int(config.number("mamba_expand") * config.number("hidden_size"))


def _mamba2(config: Config, layers: int, inner: int) -> Mamba2:
    heads = config.number("mamba_n_heads")
    if config.get("mamba_d_head") in (None, "auto"):
        size = config.derived(
            "mamba_d_head", inner // heads, f"{inner} channels / mamba_n_heads, rounded down"
        )
    else:
        size = config.number("mamba_d_head")
    return Mamba2(
        layers=layers,
        heads=heads,
        head_dim=size,
        state_dim=config.number("mamba_d_state"),
        groups=config.number("mamba_n_groups"),
        kernel=config.number("mamba_d_conv"),
    )


def bamba(config: Config) -> Parts:
    """Return the layers of Bamba."""
    layers = config.number("num_hidden_layers")
    full = len(config.indices("attn_layer_indices", layers) or ())
    return [
        attention(config, full),
        _mamba2(config, layers - full, _expanded(config)),
        mlp(config, layers),
    ]


def falcon_h1(config: Config) -> Parts:
    """Return the layers of Falcon-H1: attention and Mamba-2 side by side in every layer."""
    layers = config.number("num_hidden_layers")
    # Null is the expanded hidden size; without the key transformers' class takes a number of its own.
    inner = (
        _expanded(config)
        if config.values.get("mamba_d_ssm", 0) is None
        else config.number("mamba_d_ssm")
    )
    return [attention(config, layers), _mamba2(config, layers, inner), mlp(config, layers)]


def granite(config: Config) -> Parts:
    """Return the layers of Granite 4.0 H."""
    types = config.layer_types("layer_types", "layers_block_type")
    shared = config.number("shared_intermediate_size")
    experts = config.number("num_local_experts", low=0)
    feed: Layers = MLP(layers=len(types), size=shared)
    if experts:
        feed = MoE(
            layers=len(types),
            experts=experts,
            active_experts=config.number("num_experts_per_tok"),
            size=config.number("intermediate_size"),
            shared_size=shared,
        )
    mamba = _mamba2(config, types.count(LINEAR), _expanded(config))
    return [attention(config, types.count(FULL)), mamba, feed]


_NEMOTRON_LETTERS = {"M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}


def nemotron_h(config: Config) -> Parts:
    """Return the layers of Nemotron-H and its successors."""
    allowed = tuple(_NEMOTRON_LETTERS.values())
    pattern = config.text("hybrid_override_pattern")
    if config.get("layers_block_type", "layer_types") is not None or pattern is None:
        types = config.layer_types("layers_block_type", "layer_types", allowed=allowed)
    else:
        if unknown := set(pattern) - set(_NEMOTRON_LETTERS):
            raise config.problem(
                f"hybrid_override_pattern: unknown letter {min(unknown)!r}, allowed: {' '.join(_NEMOTRON_LETTERS)}"
            )
        types = [_NEMOTRON_LETTERS[letter] for letter in pattern]
        config.check_length("hybrid_override_pattern", len(types))
    parts: Parts = [
        attention(config, types.count(FULL)),
        Mamba2(
            layers=types.count(LINEAR),
            heads=config.number("mamba_num_heads"),
            head_dim=config.number("mamba_head_dim"),
            state_dim=config.number("ssm_state_size"),
            groups=config.number("n_groups", "mamba_n_groups"),
            kernel=config.number("conv_kernel", "mamba_d_conv"),
        ),
    ]
    if "mlp" in types:
        size = config.number("intermediate_size")
        parts.append(MLP(layers=types.count("mlp"), size=size, gated=False))
    if "moe" in types:
        parts.append(
            MoE(
                layers=types.count("moe"),
                experts=config.number("n_routed_experts", "num_local_experts"),
                active_experts=config.number("num_experts_per_tok"),
                size=config.number("moe_intermediate_size"),
                shared_size=config.number("moe_shared_expert_intermediate_size", low=0),
                latent_size=config.number("moe_latent_size", default=None),
                gated=False,
            )
        )
    return parts


def zamba2(config: Config) -> Parts:
    """Return the layers of Zamba2: shared attention blocks beside some of the Mamba-2 layers."""
    hidden = config.number("hidden_size")
    if config.get("layers_block_type", "layer_types") is not None:
        types = config.layer_types("layers_block_type", "layer_types", allowed=(LINEAR, "hybrid"))
        layers, hybrid = len(types), types.count("hybrid")
    else:
        layers = config.number("num_hidden_layers")
        hybrid = len(config.indices("hybrid_layer_ids", layers) or ())
        if not hybrid:
            raise config.problem("no key 'layers_block_type' or 'hybrid_layer_ids'")
    heads = config.number("num_attention_heads")
    state_heads = config.number("n_mamba_heads")
    if config.flag("use_shared_attention_adapter", False):
        config.notes.append("The adapters of the shared attention are left out of the FLOPs.")
    return [
        Attention(
            layers=hybrid,
            query_heads=heads,
            kv_heads=config.number("num_key_value_heads", default=heads),
            head_dim=config.number("attention_head_dim", default=None)
            or config.derived(
                "attention_head_dim",
                2 * hidden // heads,
                "2 x hidden_size / num_attention_heads, rounded down",
            ),
            input_size=2 * hidden,
        ),
        Mamba2(
            layers=layers,
            heads=state_heads,
            head_dim=config.number("mamba_headdim", default=None)
            or config.derived(
                "mamba_headdim",
                _expanded(config) // state_heads,
                "mamba_expand x hidden_size / n_mamba_heads, rounded down",
            ),
            state_dim=config.number("mamba_d_state"),
            groups=config.number("mamba_ngroups"),
            kernel=config.number("mamba_d_conv"),
        ),
        MLP(
            layers=hybrid,
            size=config.number("intermediate_size", default=4 * hidden),
            adapter_rank=config.number("adapter_rank"),
            projected=True,
        ),
    ]


def jamba(config: Config) -> Parts:
    """Return the layers of Jamba."""
    layers = range(config.number("num_hidden_layers"))

    def count(kind: str) -> int:
        period = config.number(f"{kind}_layer_period")
        offset = config.number(f"{kind}_layer_offset", low=0)
        if offset >= period:
            raise config.problem(
                f"{kind}_layer_offset = {offset}, expected less than {kind}_layer_period = {period}"
            )
        return sum(i % period == offset for i in layers)

    full, experts = count("attn"), config.number("num_experts", "num_local_experts")
    sparse = count("expert") if experts > 1 else 0
    hidden = config.number("hidden_size")
    rank = config.get("mamba_dt_rank")
    size = config.number("intermediate_size")
    parts: Parts = [
        attention(config, full),
        Mamba1(
            layers=len(layers) - full,
            inner_size=_expanded(config),
            state_dim=config.number("mamba_d_state"),
            dt_rank=-(-hidden // 16) if rank == "auto" else config.number("mamba_dt_rank"),
            kernel=config.number("mamba_d_conv"),
        ),
    ]
    if sparse:
        active = config.number("num_experts_per_tok")
        parts.append(MoE(layers=sparse, experts=experts, active_experts=active, size=size))
    return [*parts, MLP(layers=len(layers) - sparse, size=size)]
