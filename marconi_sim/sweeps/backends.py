"""Who computes the runs of a sweep: processes of this machine, or the workers of a Dask cluster.

Each yields the settings of `joblib.parallel_config`.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import joblib

from marconi_sim.base.errors import UsageError, UserError

_CONNECT_SECONDS = 10
_WATCH_SECONDS = 0.5


@contextmanager
def dask_workers(scheduler: str) -> Iterator[dict[str, Any]]:
    """Use the workers of the cluster at this address.

    Raises:
        UsageError: the package distributed is missing.
        UserError: the scheduler cannot be reached, or has no workers.
    """
    try:
        from distributed import Client
        from distributed.comm import parse_address, parse_host_port
    except ImportError as error:
        raise UsageError(
            "backend 'dask' needs the package distributed; install it: pip install 'marconi-sim[dask]'"
        ) from error
    try:
        # First by hand: a client that finds nobody tries for another 20 s when it is thrown away.
        place = parse_host_port(parse_address(scheduler)[1])
        socket.create_connection(place, timeout=_CONNECT_SECONDS).close()
        client = Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UserError(
            f"scheduler '{scheduler}': cannot be reached ({reason}); start one with 'dask scheduler' and give its"
            " address, e.g. tcp://host:8786"
        ) from error
    with client:
        if not client.ncores():
            raise UserError(
                f"scheduler '{scheduler}': has no workers; start some with 'dask worker {scheduler}'"
            )
        yield {"backend": "dask", "client": client}


def _prepare_worker(parent: int) -> None:
    """Let this worker end when the process that started it has ended, even by kill -9: it would wait for minutes.

    What a policy prints goes to stderr: the stdout that a worker inherits is for results.
    """
    sys.stdout = sys.stderr

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def local_processes(jobs: int | None, chunks: int) -> Iterator[dict[str, Any]]:
    """Use processes of this machine, one per core if `jobs` does not say; never more than there are chunks."""
    wanted = jobs or joblib.cpu_count()
    yield {
        "backend": "loky",
        "n_jobs": max(1, min(wanted, chunks)),
        "initializer": _prepare_worker,
        "initargs": (os.getpid(),),
    }
