"""Published import path of `jobs.worker.async_worker`."""

from __future__ import annotations

from cleveragents.jobs.worker.async_worker import AsyncJob, AsyncWorker, CancellationToken

__all__ = ["AsyncJob", "AsyncWorker", "CancellationToken"]
