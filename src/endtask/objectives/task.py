"""The task itself, on its texts without masks; and the loss of fine-tuning, with its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from endtask.objectives.base import BuiltObjective, Loss, Objective, PartConfig, objectives

if TYPE_CHECKING:
    from torch import Tensor

    from endtask.config import ObjectiveSettings
    from endtask.encoders.batch import TextBatch
    from endtask.encoders.network import Network
    from endtask.objectives.context import BuildContext
    from endtask.objectives.task_losses import TaskObjective


class FinetuningLoss(PartConfig):
    """Options of the loss in fine-tuning, which are keys of the section `finetune`."""

    rdrop: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        0.0,
        description="weight of R-Drop: each batch is read twice, and the loss has the divergence of both answers; "
        "auto: 1 where the budget holds all epochs with it, else 0",
    )
    contrastive: float = Field(
        0.0,
        ge=0,
        description="for few labels: weight of a loss that makes the vectors of texts of one class similar, of "
        "different classes unlike",
    )

    @property
    def passes(self) -> int:
        """How often the network reads each batch."""
        return 2 if self.rdrop else 1

    @property
    def rdrop_weight(self) -> float:
        """The weight of R-Drop; that of `auto` where it fits into the budget."""
        return 1.0 if self.rdrop == "auto" else self.rdrop

    def check_loss(self, dropout: float) -> None:
        """Raise `ValueError` for options that a network with this dropout cannot be trained with."""
        if self.rdrop not in (0.0, "auto") and not dropout:
            raise ValueError("finetune.rdrop compares answers under dropout; model.dropout is 0")


@objectives.register("task")
class TaskLossObjective(Objective):
    """the task on its texts as they are"""

    texts = ("task",)
    labels = True
    finetuning = FinetuningLoss

    def build(self, name: str, section: ObjectiveSettings, run: BuildContext) -> BuiltObjective:
        """Return the loss of the end task, or of an auxiliary task."""
        return run.task_objective(name, section, masked=False)


class FinetunedTask:
    """A task with the loss of fine-tuning.

    With `rdrop` each batch is read twice under different dropout: the loss is the mean of both readings' losses, and
    `rdrop` times half the sum of the divergences between their answers both ways (R-Drop: Liang et al., 2021, Eq. 3).
    With `contrastive` the loss has the errors of the cosines between the batch's vectors, of all readings.
    """

    replayable = True

    def __init__(self, task: TaskObjective, options: FinetuningLoss) -> None:
        self.name, self.stream, self.heads, self.passes = task.name, task.stream, task.heads, options.passes
        self._task, self._options = task, options

    def batch(self, step: int) -> TextBatch:
        """Return the labelled texts of a step."""
        return self._task.batch(step)

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Return the loss of one reading, or of two, with the options' terms."""
        task, options = self._task, self._options
        if not options.rdrop and not options.contrastive:
            return task.loss(network, batch)
        # One call for both readings: with small batches a GPU waits for kernel launches.
        read = batch.twice() if options.rdrop else batch
        hidden = network(read)
        total, parts = self._answer_loss(network.task_logits(hidden, read, task.head), batch)
        if options.contrastive:
            parts["contrastive"] = self._contrastive(network, hidden, read)
            total = total + options.contrastive * parts["contrastive"]
        return Loss(task.share(batch) * total, parts)

    def _answer_loss(self, logits: Tensor, batch: TextBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of the answers of one reading or two, and its parts."""
        task, rdrop = self._task, self._options.rdrop_weight
        if not rdrop:
            value = task.answer_loss(logits, batch)
            return value, {"task": value}
        first, second = logits.chunk(2)
        value = 0.5 * (task.answer_loss(first, batch) + task.answer_loss(second, batch))
        divergence = 0.5 * task.divergence(first, second, batch)
        return value + rdrop * divergence, {"task": value, "rdrop": divergence}

    def _contrastive(self, network: Network, hidden: Tensor, batch: TextBatch) -> Tensor:
        from endtask.objectives.contrastive import contrastive_loss

        assert batch.labels is not None
        return contrastive_loss(network.pooled(hidden, batch, self._task.head), batch.labels)

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Return the cost of all readings."""
        return self.passes * self._task.flops(network, batch)
