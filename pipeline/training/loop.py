"""The training loop of every method."""

from __future__ import annotations

import math
import sys
import time
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn
from tqdm import tqdm

from pipeline.composition.method import Method
from pipeline.errors import UserError
from pipeline.estimators.rollouts import StepRollouts
from pipeline.runtime import ranks
from pipeline.runtime.adam import Adam
from pipeline.runtime.signals import postpone_requests
from pipeline.training.captured_steps import StepResult, StepRunner, prepare_gpu_training
from pipeline.training.checkpoint import Checkpoints
from pipeline.training.optimisation import Optimisation
from pipeline.training.training_budget import TrainingBudget
from pipeline.types import Batch, Losses, Report

LOG_EVERY = 25  # steps between two reads of the losses, each of which synchronises with the device

MAX_NORM_GROWTH = 100  # a mean gradient norm above this multiple of its largest earlier value causes a warning

RecordMetrics = Callable[[dict[str, float], int], None]


class EpochBatches(Protocol):
    """Shuffled batches of each epoch; equal data, settings, seed and epoch give equal batches."""

    def __len__(self) -> int: ...

    def epoch(self, epoch: int, start: int = 0) -> Generator[Batch]: ...


@dataclass
class RunningMeans:
    """Running means of reports since the last `take`, kept on the device."""

    sums: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, report: dict[str, Tensor]) -> None:
        """Add the values of a step's report."""
        for name, value in report.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
            self.counts[name] = self.counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Return the means and reset them."""
        sums = torch.stack([v.float() for v in self.sums.values()]).tolist()
        means = {name: value / self.counts[name] for name, value in zip(self.sums, sums, strict=True)}
        self.sums, self.counts = {}, {}
        return means


class LearningRates:
    """Learning rates of the roles in one step; on a GPU the run's rate is a tensor, which a CUDA graph reads."""

    def __init__(self, constant: Mapping[str, float], device: torch.device) -> None:
        """Store `constant`, the rates of those roles that do not use the run's rate."""
        self._constant = constant
        self._rate: float | Tensor = torch.zeros((), device=device) if device.type == "cuda" else 0.0

    def set(self, rate: float) -> None:
        """Set the run's rate of this step."""
        self._rate = self._rate.fill_(rate) if isinstance(self._rate, Tensor) else rate

    def get_rate(self, role: str) -> float | Tensor:
        """Return the learning rate of a role."""
        return self._constant.get(role, self._rate)


class Training:
    """One run of one method, with all state that a checkpoint must hold."""

    def __init__(
        self,
        method: Method,
        batches: EpochBatches,
        settings: Optimisation,
        seed: int,
        device: torch.device,
        validate: Callable[[], dict[str, float]] | None = None,
        record: RecordMetrics = lambda metrics, step: None,
    ) -> None:
        self.method, self.batches, self.seed, self.device = method, batches, seed, device
        self.settings = settings.lengthen(len(batches))
        self.validate, self.record = validate, record
        self.modules = method.modules()
        for module in self.modules.values():
            module.to(device)
        trained_roles = method.schedule.all_roles
        self.adams = {role: Adam(agent) for role, agent in method.agents.items() if role in trained_roles}
        self.step = 0
        self.history: list[dict[str, float]] = []
        self.rates = LearningRates(method.rates, device)
        self.runner = StepRunner(self._compute_step, device)
        self.budget = TrainingBudget(device)
        # one value per entry of the history; stored apart, so that equal runs have byte-identical histories
        self.processor_seconds: list[float] = []
        self.means = RunningMeans()
        self.best: dict[str, Tensor] = {}
        self.best_value = -float("inf")
        self.latest: dict[str, float] = {}
        self.earlier_norms: dict[str, list[float]] = {}
        self.warned: set[str] = set()

    def run(self, checkpoints: Checkpoints | None = None, every_seconds: float = 60.0) -> list[dict[str, float]]:
        """Train to the last epoch or to saturation, from the latest checkpoint if one exists; return the history.

        The weights in `method` are then those of the last step, or of the best validation by `settings.select`. A
        checkpoint is saved in `checkpoints` every `every_seconds` seconds, and on a request to end, which stops
        training early. Raises StopRequest on that request. Raises UserError where training diverges, where validation
        lacks the metric `settings.select`, and where ranks read different checkpoints. Raises UserError, too, where a
        step cannot be captured as a CUDA graph.
        """
        if checkpoints is not None:
            self._resume(checkpoints)
        self.budget.start()
        total = len(self.batches)
        last_save = time.monotonic()
        hide_bar = True if ranks.get_rank() else None  # None: no bar where stderr is not a terminal
        if self.settings.validations_per_epoch > 1 and not self.step:
            self._add_entry(0, validates=True)
        with (
            prepare_gpu_training(self.device),
            postpone_requests() as has_request,
            tqdm(total=total * self.settings.epochs, initial=self.step, unit="step", disable=hide_bar) as bar,
        ):
            for epoch in range(self.step // total, self.settings.epochs):
                # saturation ends training between epochs only, so a run resumed within an epoch completes it
                if self.step % total == 0 and self.settings.has_saturated(self.history):
                    break
                with closing(self.batches.epoch(epoch, self.step % total)) as batches:
                    for batch in batches:
                        self.train_step(batch.to(self.device))
                        bar.update()
                        if self.step % LOG_EVERY == 0 or self.step % total == 0:
                            self._report_means(bar)
                        if self.step % total == 0:
                            self._add_entry(epoch + 1, self.settings.validates(epoch))
                        elif self.settings.ends_part(self.step, total):
                            self._add_entry(round(self.step / total, 3), validates=True)
                        must_end = has_request()
                        must_save = must_end or time.monotonic() - last_save >= every_seconds
                        if checkpoints is not None and not ranks.get_rank() and must_save:
                            self._check_finite()
                            checkpoints.save(self.step, *self._collect_state())
                            last_save = time.monotonic()
                        if must_end:
                            return self.history
        if self.best:
            self._load_agents(self.best)
        self._check_finite()
        return self.history

    def find_kept_entry(self) -> dict[str, float]:
        """Return the history entry of the step whose weights were kept; without a history, step 0."""
        entries = [entry for entry in self.history if f"val/{self.settings.select}" in entry]
        if not entries:
            return self.history[-1] if self.history else {"epoch": 0, "step": 0}
        return max(entries, key=lambda entry: entry[f"val/{self.settings.select}"])

    def train_step(self, batch: Batch) -> None:
        """Train on a batch that is on the device."""
        # dropout outside rollouts draws from the global generator, seeded here so that a resumed run draws the same
        # numbers; the seed is hashed, since a CPU generator uses only the low 32 bits of a seed
        torch.manual_seed(zlib.crc32(f"{self.seed} {self.step}".encode()))
        roles = self.method.freeze(self.step)
        for role, agent in self.method.agents.items():
            agent.train(role in roles)
        self.rates.set(self.settings.rate(self.step, len(self.batches)))
        result = self.runner.run(batch, roles)
        for report in result.reports:
            self.means.add(report)
        self.budget.add(result.captions_drawn)
        self.step += 1

    def _compute_step(self, batch: Batch) -> StepResult:
        """Compute the losses of `batch`, and update the weights of the scheduled roles."""
        agents, rollouts = self.method.agents, StepRollouts(self.method.speaker, batch, self.seed)
        reports = []
        for roles, losses, values in self.method.rounds(rollouts, self.step):
            if self.method.normalise_gradients:
                _backpropagate_normalised(losses, self.method.weights, [agents[role] for role in sorted(roles)])
            elif losses:
                torch.stack(list(losses.values())).sum().backward()
                ranks.all_reduce_sum(
                    [p.grad for agent in agents.values() for p in agent.parameters() if p.grad is not None]
                )
            report = _average_over_ranks(values)
            for role in sorted(roles):
                norm = _compute_gradient_norm(agents[role])
                self.settings.clip(agents[role].parameters())
                self.adams[role].step(self.rates.get_rate(role))
                report[f"{role}/gradient_norm"] = norm
            reports.append(report)
        return StepResult(reports, rollouts.captions_drawn)

    def _report_means(self, bar: tqdm) -> None:
        means = self.means.take()
        if not_finite := [name for name, value in means.items() if not math.isfinite(value)]:
            raise self._make_divergence_error(", ".join(not_finite))
        self._warn_of_growth(means)
        means["learning_rate"] = self.settings.rate(self.step - 1, len(self.batches))
        self.record(means, self.step)
        self.latest = means
        bar.set_postfix({name.split("/")[0][:6]: f"{v:.3f}" for name, v in means.items() if name.endswith("/loss")})

    def _check_finite(self) -> None:
        """Raise UserError for weights that are not finite, so that earlier checkpoints stay the newest."""
        for name, module in self.modules.items():
            finite = [weights.isfinite().all() for weights in module.parameters()]
            if finite and not torch.stack(finite).all():
                raise self._make_divergence_error(f"weights of the {name}")

    def _make_divergence_error(self, subject: str) -> UserError:
        return UserError(
            f"training diverged before step {self.step}: NaN or infinity in {subject}; lower the learning rate or clip "
            "gradients (optimisation in params.yaml)"
        )

    def _warn_of_growth(self, means: Mapping[str, float]) -> None:
        """Warn once per role where its mean gradient norm exceeds MAX_NORM_GROWTH times the largest earlier one.

        A warning requires three or more earlier means that are not zero.
        """
        for name, norm in means.items():
            if name.endswith("/gradient_norm") and norm:
                earlier = self.earlier_norms.setdefault(name, [])
                if (
                    len(earlier) >= 3
                    and norm > MAX_NORM_GROWTH * max(earlier)
                    and name not in self.warned
                    and not ranks.get_rank()
                ):
                    self.warned.add(name)
                    line = f"{name} is {norm:.3g} before step {self.step}, and was {max(earlier):.3g} at most"
                    tqdm.write(f"warning: {line}; lower the learning rate or clip gradients", file=sys.stderr)
                earlier.append(norm)

    def _add_entry(self, epoch: float, validates: bool) -> None:
        """Append an entry to the history, and record the budget that training has used."""
        captions_drawn, seconds = self.budget.captions_drawn, self.budget.processor_seconds
        self.record({"captions_drawn": captions_drawn, "processor_seconds": seconds}, self.step)
        entry = {"epoch": epoch, "step": self.step, "captions_drawn": captions_drawn, **self.latest}
        with self.budget.pause():
            self.history.append(entry | (self._run_validation() if validates else {}))
        self.processor_seconds.append(seconds)

    def _run_validation(self) -> dict[str, float]:
        """Compute and record validation metrics; return an empty dictionary without a validation function."""
        if self.validate is None:
            return {}
        for agent in self.method.agents.values():
            agent.eval()
        with torch.no_grad():
            validation = ranks.broadcast(None if ranks.get_rank() else self.validate())
        assert validation is not None
        metrics = {f"val/{name}": value for name, value in validation.items()}
        self.record(metrics, self.step)
        self._keep_best(validation)
        return metrics

    def _keep_best(self, validation: dict[str, float]) -> None:
        metric = self.settings.select
        if metric == "last":
            return
        if metric not in validation:
            raise UserError(
                f"optimisation.select: no validation metric {metric!r}; choose one of {', '.join(validation)}"
            )
        if validation[metric] > self.best_value:
            self.best_value = validation[metric]
            self.best = {name: value.clone() for name, value in self._collect_agent_tensors().items()}

    def _collect_agent_tensors(self) -> dict[str, Tensor]:
        agents = self.method.agents
        return {f"{role}.{n}": t for role, a in agents.items() for n, t in a.state_dict().items()}

    def _load_agents(self, tensors: dict[str, Tensor]) -> None:
        for role, agent in self.method.agents.items():
            prefix = f"{role}."
            agent.load_state_dict({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})

    def _collect_state(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        tensors = {f"module.{m}.{n}": t for m, module in self.modules.items() for n, t in module.state_dict().items()}
        for role, adam in self.adams.items():
            tensors |= {f"adam.{role}.{n}": t for n, t in adam.tensors().items()}
        tensors |= {f"best.{n}": t for n, t in self.best.items()}
        tensors |= {f"mean.{n}": t for n, t in self.means.sums.items()}
        state = {"history": self.history, "counts": self.means.counts, "best_value": self.best_value}
        state |= {"latest": self.latest}
        return tensors, state | {"budget": self.budget.state(), "processor_seconds": self.processor_seconds}

    def _resume(self, checkpoints: Checkpoints) -> None:
        checkpoint = checkpoints.load_latest()
        step = 0 if checkpoint is None else checkpoint.step
        if step != ranks.broadcast(step):
            raise UserError(
                f"{checkpoints.folder}: rank {ranks.get_rank()} has other checkpoints than rank 0; use a folder that "
                "all ranks share"
            )
        if checkpoint is None:
            return
        self.step = checkpoint.step
        parts: dict[str, dict[str, Tensor]] = {"module": {}, "adam": {}, "best": {}, "mean": {}}
        for name, tensor in checkpoint.tensors.items():
            kind, key = name.split(".", 1)
            parts[kind][key] = tensor.to(self.device)
        for name, module in self.modules.items():
            prefix = f"{name}."
            tensors = {n.removeprefix(prefix): t for n, t in parts["module"].items() if n.startswith(prefix)}
            module.load_state_dict(tensors)
        for role, adam in self.adams.items():
            prefix = f"{role}."
            tensors = {n.removeprefix(prefix): t for n, t in parts["adam"].items() if n.startswith(prefix)}
            adam.restore(tensors)
        self.best = parts["best"]
        self.best_value = checkpoint.state["best_value"]
        self.history, self.latest = checkpoint.state["history"], checkpoint.state["latest"]
        self.processor_seconds = checkpoint.state["processor_seconds"]
        self.budget.restore(checkpoint.state["budget"])
        counts = checkpoint.state["counts"]
        self.means = RunningMeans({name: parts["mean"][name] for name in counts}, counts)


def _backpropagate_normalised(losses: Losses, weights: Mapping[str, float], agents: Sequence[nn.Module]) -> None:
    """Accumulate the losses' gradients on `agents`, each scaled to the norm |weight| per agent.

    The losses already contain their weights, and thus the weights' signs.
    """
    for name, loss in losses.items():
        for agent in agents:
            parameters = list(agent.parameters())
            gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
            pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
            if not pairs:
                continue
            ranks.all_reduce_sum([g for _, g in pairs])
            norm = nn.utils.get_total_norm([g for _, g in pairs])
            scale = abs(weights[name]) / norm.clamp(min=torch.finfo(norm.dtype).tiny)
            for parameter, gradient in pairs:
                gradient = gradient * scale
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def _average_over_ranks(report: Report) -> Report:
    """Return the report averaged over the ranks."""
    if ranks.count_ranks() == 1 or not report:
        return report
    values = ranks.all_sum(torch.stack([value.float() for value in report.values()])) / ranks.count_ranks()
    return dict(zip(report, values, strict=True))


def _compute_gradient_norm(agent: nn.Module) -> Tensor:
    gradients = [p.grad for p in agent.parameters() if p.grad is not None]
    if not gradients:
        return torch.zeros((), device=next(agent.parameters()).device)
    return nn.utils.get_total_norm(gradients)
