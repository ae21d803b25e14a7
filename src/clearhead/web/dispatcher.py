"""Hands requests to the worker and waits for their answers without blocking the event loop."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from fastapi import Request

from clearhead.web.cache import Answer
from clearhead.web.job_queue import Overloaded, Worker
from clearhead.web.schemas import CurveRequest, CurveResponse, ExplainRequest, HideRequest, HideResponse
from clearhead.web.service import ExplainService

# Short enough that the work for a client that has left ends soon.
POLL_SECONDS = 0.2
TICKET_HEADER = "x-clearhead-ticket"
MAX_TICKET = 64
TIMEOUT_MESSAGE = "The answer took longer than this server allows. Try a shorter input or a faster method."


class Dispatcher:
    """Runs methods of the service on the worker's thread, as long as the client waits."""

    def __init__(self, worker: Worker, service: ExplainService) -> None:
        self.worker = worker
        self.service = service

    async def explain(self, request: Request, body: ExplainRequest) -> Answer:
        """Explain an input, together with waiting requests that can share its forward pass."""
        group = self.service.find_batch_group(body)
        answer: Answer = await self.run(request, self.service.explain, body, group)
        return answer

    async def hide(self, request: Request, body: HideRequest) -> HideResponse:
        """Run the model with tokens hidden."""
        response: HideResponse = await self.run(request, self.service.hide, body)
        return response

    async def compute_curve(self, request: Request, body: CurveRequest) -> CurveResponse:
        """Compute a perturbation curve."""
        response: CurveResponse = await self.run(request, self.service.compute_curve, body)
        return response

    async def run(
        self, request: Request, work: Callable[[list[Any]], Sequence[Any]], body: Any, group: Hashable = None
    ) -> Any:
        """Run a method of a service, which takes a list of bodies, with this one; return its answer."""
        job = self.worker.submit(work, body, group, _read_ticket(request))
        result = asyncio.wrap_future(job.future)
        try:
            return await self._wait(request, result)
        except asyncio.CancelledError:
            # The worker cancels the futures of waiting jobs when it is closed.
            raise Overloaded("The server is stopping.") from None
        finally:
            # Whatever ended the wait: a job that has not finished is not needed any more.
            self.worker.discard(job)
            result.cancel()

    async def _wait(self, request: Request, result: "asyncio.Future[Any]") -> Any:
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.worker.limits.answer_timeout
        # Polls, because ASGI gives no event for a client that disconnects.
        while not await _is_done(result):
            if clock() > deadline or await request.is_disconnected():
                raise Overloaded(TIMEOUT_MESSAGE)
        return result.result()


def _read_ticket(request: Request) -> str:
    """Return the name that a client has chosen for its request, to ask how far it is."""
    return request.headers.get(TICKET_HEADER, "")[:MAX_TICKET]


async def _is_done(result: "asyncio.Future[Any]") -> bool:
    """Wait a moment for a result; return whether it is there."""
    await asyncio.wait({result}, timeout=POLL_SECONDS)
    return result.done()
