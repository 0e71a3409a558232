"""Synthetic chats: sessions whose lengths are drawn from stated distributions.

A session has `min_rounds` rounds and a geometrically distributed number more. The tokens of a
user's message and of an answer are log-normal: a level per session, and a spread of its messages
around that level. Every message also costs `wrapper_tokens`, as each message of the published
converter does. A request's input is everything before its answer; sessions share nothing but the
wrapper of the first message, as chats without a system prompt do.

Everything is drawn from one numpy Generator, session by session, so that the first sessions of a
longer trace are those of a shorter one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.random import Generator

from marconi_sim.base.errors import UserError
from marconi_sim.trace.compiled.build import Request


@dataclass(frozen=True)
class LogNormal:
    """A length in tokens: exp(session level + spread of the message), rounded, within [1, largest].

    Attributes:
        median: tokens.
        between: standard deviation of the logarithm between sessions.
        within: standard deviation of the logarithm within a session.
        largest: tokens; longer draws are cut.
    """

    median: float
    between: float
    within: float
    largest: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            lowest = 1 if field.name in ("median", "largest") else 0
            if not isinstance(value, int | float) or not lowest <= value < math.inf:
                raise UserError(f"{field.name} {value!r}: must be a number of at least {lowest}")


@dataclass(frozen=True)
class ChatParameters:
    """What synthetic chats look like.

    Attributes:
        seed: of all draws.
        sessions: how many.
        min_rounds: fewest rounds (requests) of a session.
        more_rounds: mean number of rounds beyond that.
        user: tokens of a user's message without its wrapper.
        answer: tokens of an answer without its wrapper.
        wrapper_tokens: tokens that each message costs beyond its content.
        words_per_token: of a user's message, for typing times.
        max_tokens: a session ends before the first request whose input would be longer.
    """

    seed: int
    sessions: int
    min_rounds: int
    more_rounds: float
    user: LogNormal
    answer: LogNormal
    wrapper_tokens: int
    words_per_token: float
    max_tokens: int

    def __post_init__(self) -> None:
        lowest = {"seed": 0, "sessions": 1, "min_rounds": 1, "wrapper_tokens": 1, "max_tokens": 1}
        for name, at_least in lowest.items():
            value = getattr(self, name)
            if type(value) is not int or not at_least <= value < 2**31:
                raise UserError(f"{name} {value!r}: must be a whole number of at least {at_least}")
        for name in ("more_rounds", "words_per_token"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value < math.inf:
                raise UserError(f"{name} {value!r}: must be a number of at least 0")


def _lengths(length: LogNormal, rounds: int, generator: Generator) -> list[int]:
    level = generator.normal(math.log(length.median), length.between)
    drawn = np.exp(level + length.within * generator.standard_normal(rounds))
    return [int(x) for x in np.clip(np.rint(drawn), 1, length.largest)]


def chats(parameters: ChatParameters) -> Iterator[Request]:
    """Yield the requests of every session, session by session.

    Token ids are counted up: no two messages share one, beyond the first message's wrapper.
    """
    generator = np.random.default_rng(parameters.seed)
    wrapper = np.arange(parameters.wrapper_tokens, dtype=np.int64)
    fresh = parameters.wrapper_tokens
    for session in range(parameters.sessions):
        more = generator.geometric(1 / (1 + parameters.more_rounds)) - 1
        rounds = parameters.min_rounds + int(more)
        user = _lengths(parameters.user, rounds, generator)
        answer = _lengths(parameters.answer, rounds, generator)
        total = sum(user) + sum(answer) + 2 * rounds * parameters.wrapper_tokens
        tokens = np.concatenate([wrapper, np.arange(fresh, fresh + total - wrapper.size)])
        fresh += total - wrapper.size
        end = 0
        for turn in range(rounds):
            input_tokens = end + parameters.wrapper_tokens + user[turn]
            if input_tokens > parameters.max_tokens:
                break
            end = input_tokens + parameters.wrapper_tokens + answer[turn]
            yield Request(
                session=str(session),
                turn=turn,
                symbols=tokens[:end],
                input_tokens=input_tokens,
                output_tokens=end - input_tokens,
                words=max(1, round(user[turn] * parameters.words_per_token)),
            )
