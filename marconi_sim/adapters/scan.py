"""The recurrence of Mamba-2 over many tokens at once, from any state, with the states at any positions.

Per head, with decay a_t = exp(A dt_t) and a state h of (width, N):

    h_t = a_t h_(t-1) + dt_t x_t B_t^T        y_t = h_t C_t

Within a chunk, y is a masked matrix product (the "dual" form of Dao and Gu, arXiv 2405.21060, section 6); between
chunks the states are passed on one by one. A state inside a chunk is the chunk's first state and the tokens since, each
decayed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

_CHUNKS_AT_ONCE = 16  # bounds the memory of the masked products, (chunks, heads, chunk, chunk)


def _scan(
    state: Tensor, cuts: Sequence[int], inputs: Tensor, steps: Tensor, B: Tensor, C: Tensor
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Scan whole chunks.

    Args:
        state: (heads, width, N), before the first token.
        cuts: positions from 1 to chunks x T.
        inputs: (chunks, T, heads, width), dt_t x_t.
        steps: (chunks, T, heads), the logarithms A dt_t <= 0 of the decays.
        B: (chunks, T, groups, N).
        C: as B.

    Returns:
        y (chunks, T, heads, width), the last state and the states at the cuts.
    """
    chunks, T, heads, width = inputs.shape
    groups, N = B.shape[-2:]
    decays = (
        steps.cumsum(1).transpose(1, 2).contiguous()
    )  # from before the chunk to t: (chunks, heads, T)
    x = inputs.transpose(1, 2)  # (chunks, heads, T, width)
    B, C = B.transpose(1, 2), C.transpose(1, 2)  # (chunks, groups, T, N)

    later = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
    between = (decays[..., :, None] - decays[..., None, :]).masked_fill_(later, -torch.inf).exp_()
    scores = (C @ B.mT)[:, :, None] * between.view(chunks, groups, -1, T, T)
    y = scores.view(chunks, heads, T, T) @ x

    to_end = (decays[..., -1:] - decays).exp_()
    kept = (x * to_end[..., None]).transpose(2, 3)  # (chunks, heads, width, T)
    added = kept.reshape(chunks, groups, -1, T) @ B
    added = added.view(chunks, heads, width, N)
    over_chunk = decays[..., -1].exp()[..., None, None]
    states = state.new_empty(chunks + 1, heads, width, N)
    states[0] = state
    for chunk in range(chunks):
        torch.addcmul(added[chunk], over_chunk[chunk], states[chunk], out=states[chunk + 1])

    carried = (
        C @ states[:-1].view(chunks, groups, -1, N).mT
    )  # (chunks, groups, T, heads of it x width)
    carried = carried.view(chunks, groups, T, -1, width).transpose(2, 3)
    y.addcmul_(decays.exp()[..., None], carried.reshape(chunks, heads, T, width))

    found = []
    for cut in cuts:
        chunk, t = divmod(cut - 1, T)
        upto = decays[chunk, :, : t + 1]
        weights = (upto[:, -1:] - upto).exp_()
        tokens = (x[chunk, :, : t + 1] * weights[..., None]).transpose(1, 2)
        own = tokens.reshape(groups, -1, t + 1) @ B[chunk, :, : t + 1]
        found.append(
            torch.addcmul(
                own.view(heads, width, N), upto[:, -1].exp()[:, None, None], states[chunk]
            )
        )
    return y.transpose(1, 2), states[-1], found


def scan(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    state: Tensor,
    cuts: Sequence[int],
    chunk: int,
) -> tuple[Tensor, list[Tensor]]:
    """Run the recurrence.

    Args:
        x: (tokens, heads, width).
        dt: (tokens, heads), >= 0.
        A: (heads,), < 0.
        B: (tokens, groups, N); the heads of a group, `heads / groups` that follow each other, share it.
        C: as B.
        state: (heads, width, N), before the first token.
        cuts: numbers of tokens, from 1 to all, ascending.
        chunk: tokens of a chunk.

    Returns:
        y (tokens, heads, width), and for each cut the state (heads, width, N) after that many tokens.
    """
    tokens, chunk = len(x), min(chunk, len(x))
    inputs, steps = x * dt[..., None], dt * A
    outputs, found = [], []
    for start in range(0, tokens, _CHUNKS_AT_ONCE * chunk):
        end = min(start + _CHUNKS_AT_ONCE * chunk, tokens)
        # A step of 0 that adds nothing: tokens of the padding leave the state alone.
        padding = -(end - start) % chunk
        in_chunks = (
            functional.pad(tensor[start:end], (0, 0) * (tensor.dim() - 1) + (0, padding)).unflatten(
                0, (-1, chunk)
            )
            for tensor in (inputs, steps, B, C)
        )
        here = [cut - start for cut in cuts if start < cut <= end]
        y, state, states = _scan(state, here, *in_chunks)
        outputs.append(y.flatten(0, 1)[: end - start])
        found += states
    return torch.cat(outputs), found
