"""Hands requests to the worker and waits for their answers without blocking the event loop."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from fastapi import Request

from clearhead.web.cache import Answer
from clearhead.web.job_queue import Overloaded, Worker
from clearhead.web.schemas import CurveRequest, CurveResponse, ExplainRequest, HideRequest, HideResponse
from clearhead.web.service import ExplainService

POLL_SECONDS = 0.2


class Dispatcher:
    """Runs methods of the service on the worker's thread, as long as the client waits."""

    def __init__(self, worker: Worker, service: ExplainService) -> None:
        self.worker = worker
        self.service = service

    async def explain(self, request: Request, body: ExplainRequest) -> Answer:
        """Explain an input, together with waiting requests that can share its forward pass."""
        group = self.service.find_batch_group(body)
        answer: Answer = await self._run(request, self.service.explain, body, group)
        return answer

    async def hide(self, request: Request, body: HideRequest) -> HideResponse:
        """Run the model with tokens hidden."""
        response: HideResponse = await self._run(request, self.service.hide, body)
        return response

    async def compute_curve(self, request: Request, body: CurveRequest) -> CurveResponse:
        """Compute a perturbation curve."""
        response: CurveResponse = await self._run(request, self.service.compute_curve, body)
        return response

    async def _run(
        self, request: Request, work: Callable[[list[Any]], Sequence[Any]], body: Any, group: Hashable = None
    ) -> Any:
        job = self.worker.submit(work, body, group)
        result = asyncio.wrap_future(job.future)
        try:
            return await self._wait(request, result)
        except asyncio.CancelledError:
            raise Overloaded("The server is stopping.") from None
        finally:
            # Whatever ended the wait: a job that has not finished is not needed any more.
            job.abandoned.set()
            job.future.cancel()
            result.cancel()

    async def _wait(self, request: Request, result: "asyncio.Future[Any]") -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.worker.limits.answer_timeout
        while not result.done():
            # Polls, because ASGI gives no event for a client that disconnects.
            await asyncio.wait({result}, timeout=POLL_SECONDS)
            if result.done():
                break
            if loop.time() > deadline or await request.is_disconnected():
                raise Overloaded(
                    "The answer took longer than this server allows. Try a shorter input or a faster method."
                )
        return result.result()
