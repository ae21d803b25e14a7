"""Ray runner: the shards of a table on actors that each hold the model."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from clearhead.cluster import ActorPlan, Cluster
from clearhead.model.placement import place_model
from clearhead.progress import ProgressBar
from clearhead.tables.explainer import TableExplainer
from clearhead.tables.records import Record
from clearhead.tables.shards import Shard


@dataclass(frozen=True)
class RayRunner:
    """Explains shards on a cluster; `device` is that of its workers, by default that of the model."""

    cluster: Cluster
    device: str | None = None

    def __call__(
        self, explainer: TableExplainer, shards: Iterator[Shard], bar: ProgressBar
    ) -> Iterator[tuple[Shard, list[Record]]]:
        """Yield shards with their records as they come."""
        actors = self._plan_actors(explainer)
        for shard, records in self.cluster.run_jobs(actors, shards):
            bar(len(shard.rows))
            yield shard, records

    def _plan_actors(self, explainer: TableExplainer) -> ActorPlan:
        device = self._choose_device(explainer)
        arguments = (_move_to_cpu(explainer), device, Path.cwd())
        return ActorPlan(TableWorker, arguments, device, one_per_gpu=True)

    def _choose_device(self, explainer: TableExplainer) -> str:
        name = self.device or explainer.model.device.type
        # Without an index: a worker sees only the GPU that it reserved.
        return name.partition(":")[0]


def _move_to_cpu(explainer: TableExplainer) -> TableExplainer:
    """Return the explainer as it is sent: weights of a GPU could be read only where there is the same GPU."""
    placed = _place(explainer, "cpu")
    return replace(placed, model=replace(placed.model, copies={}))


def _place(explainer: TableExplainer, device: str) -> TableExplainer:
    return replace(explainer, model=place_model(explainer.model, device, None))


class TableWorker:
    """Actor: the model on its device, kept between shards."""

    def __init__(self, explainer: TableExplainer, device: str, folder: Path) -> None:
        self.sent = explainer
        self.device = device
        self.folder = folder

    @cached_property
    def explainer(self) -> TableExplainer:
        """The explainer on the device of the actor."""
        # Not in the constructor: an error there would look like the death of the actor.
        _enter_folder(self.folder)
        return _place(self.sent, self.device)

    def run_job(self, shard: Shard) -> list[Record]:
        return self.explainer.explain_rows(shard.rows)


def _enter_folder(folder: Path) -> None:
    # Paths of images in a table may be relative to the folder in which the run was started.
    if folder.is_dir():
        os.chdir(folder)
