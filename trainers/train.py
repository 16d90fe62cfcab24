"""Train a classifier, or a task of your own, in one process or in several.

One process:                 python -m trainers.train
All GPUs of one node:        torchrun --standalone --nproc-per-node=4 -m trainers.train --epochs 20
Several nodes, on each:      torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d \\
                                 --rdzv-id=JOB --rdzv-endpoint=HOST:PORT -m trainers.train
One srun task per rank:      srun --ntasks-per-node=4 python -m trainers.train
                                 (with MASTER_ADDR and MASTER_PORT exported)
A task of your own:          python -m trainers.train --task tasks.py:MyTask

In a job of orchestrator, environment variables name the metrics file (ORCHESTRATOR_METRICS_FILE),
the run folder, the array task and the attempt (ORCHESTRATOR_RUN_DIR, _TASK, _ATTEMPT), the stop
file, whose existence requests a stop (ORCHESTRATOR_STOP_FILE), and the requeue file, by which this
program requests a requeue (ORCHESTRATOR_REQUEUE_FILE). All of them are optional.
"""

import argparse
import contextlib
import gc
import hashlib
import math
import os
import pathlib
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import nn
from torch.distributed.elastic.multiprocessing import errors as elastic_errors

from trainers import (
    arguments,
    checkpoint,
    distributed,
    errors,
    metrics,
    optim,
    parallel,
    report,
    settings,
    stop,
    tasks,
)
from trainers.data import batches, loading, memory
from trainers.progress import Progress
from trainers.tools import monitor, profiling


class Trainer:
    """A training on this rank. Methods without an underscore are called by all ranks."""

    def __init__(
        self,
        args: argparse.Namespace,
        dist: distributed.DistInfo,
        device: torch.device,
        *,
        mode: str,
        gpu_ids: Sequence[int],
        stopper: stop.Stopper,
        outputs: metrics.Outputs | None = None,
        checkpoint_dir: pathlib.Path | None = None,
    ) -> None:
        self.args, self.dist, self.device, self.mode = args, dist, device, mode
        self.stopper, self.outputs = stopper, outputs
        # With DataParallel one process uses all GPUs of the node.
        self.num_devices = max(1, len(gpu_ids)) if mode == "dp" else dist.world_size
        self.precision = optim.resolve_precision(args.precision, device)
        settings.configure_torch(args, self.precision)

        self.task = tasks.load(args, dist)
        train_data, eval_data = self.task.train_data(), self.task.eval_data()
        self.fingerprint = settings.same_data(train_data, eval_data, args, dist)
        self.plan = batches.make_plan(
            args,
            num_samples=loading.num_samples_of(train_data),
            rank=dist.rank,
            world_size=dist.world_size,
            num_devices=self.num_devices,
        )
        memory_format = settings.memory_format(args)
        self.source = loading.make_source(
            args.data_path,
            train_data,
            eval_data,
            self.plan,
            loading.LoadingOptions(
                device=device,
                memory_format=memory_format,
                seed=args.seed,
                num_workers=4 if args.num_workers is None else args.num_workers,
                prefetch_factor=args.prefetch_factor,
                eval_batch_size=args.eval_batch_size,
            ),
        )

        # The same initial weights on every rank, also without DDP, which broadcasts those of rank 0.
        torch.manual_seed(args.seed)
        self.model = self.task.model().to(device=device, memory_format=memory_format)
        self.run = settings.describe(self, train_data, eval_data)
        seed_rank(args.seed, dist.rank, 0)
        self.wrapped = parallel.wrap(
            self.model, args, mode=mode, device=device, precision=self.precision, gpu_ids=gpu_ids
        )
        self.compiled = parallel.compiled(self.wrapped, args.compile, device)
        self.optimizer = optim.make_optimizer(args, self.wrapped.parameters())
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "fp16")
        # FSDP has its own mixed precision.
        self.autocast = optim.autocast("fp32" if mode == "fsdp" else self.precision, device)
        self.ema = None
        if args.ema_decay is not None:
            self.ema = optim.ExponentialMovingAverage(self.model, args.ema_decay)
        self.schedule = optim.make_schedule(
            args,
            steps_per_epoch=self.plan.steps_per_epoch,
            global_batch_size=self.plan.global_batch_size,
        )
        self.progress = Progress()
        self.meter = metrics.Meter(device, self.source)
        self.store = None
        if checkpoint_dir is not None:
            self.store = checkpoint.Store(
                checkpoint_dir,
                keep=args.keep_checkpoints,
                sharded=mode == "fsdp",
                check=outputs.check if outputs is not None else lambda: None,
            )
        self.settings = settings.read(self)
        self.environment = settings.environment(dist, device, mode)
        self.first_step = 0

    def train(self) -> stop.Reason | None:
        """Train until the end or a stop; return why it stopped, or None if it is complete."""
        self.resume()
        args, progress = self.args, self.progress
        is_printing = self.dist.rank == 0
        if is_printing and not progress.finished:
            report.write(
                report.start_lines(self.dist, self.mode, settings.gpus_per_node(self), self.run)
            )
        self.first_step = progress.step
        self.stopper.begin(progress.step)
        self._bar = report.EpochProgress(args.log_seconds) if is_printing else None
        self._profiler = None
        if args.profile_steps and self.outputs is not None:
            folder = self.outputs.run_dir / f"profile{self.outputs.suffix}"
            self._profiler = profiling.make_profiler(folder, args.profile_steps)
        reason = None
        with self._profiler or contextlib.nullcontext(), garbage_collected_between_epochs():
            while not progress.finished and reason is None:
                reason = self.train_epoch()
                if reason is None:
                    self.end_epoch()
                else:
                    self.save()
        if self.store is not None:
            self.store.close()
        self._write_result("stopped" if reason is not None else "complete")
        if is_printing and reason is None:
            self._print_summary()
        if self.store is not None and self.store.failure is not None:
            raise self.store.failure
        return reason

    def train_epoch(self) -> stop.Reason | None:
        """Train the rest of an epoch; return why it was stopped, or None at its end."""
        args, progress = self.args, self.progress
        self.wrapped.train()
        distributed.barrier()
        if progress.step_in_epoch == 0:
            self.meter.start()
        # Part of the measured time of the epoch.
        self.source.begin_epoch(progress.epoch, progress.step_in_epoch)
        begin, window_step, pending = self.meter.snapshot(), progress.step, None
        reason = None
        while progress.step_in_epoch < self.plan.steps_per_epoch and reason is None:
            began = time.perf_counter()
            self.train_step(progress.step_in_epoch)
            progress.step += 1
            progress.step_in_epoch += 1
            if progress.step == self.first_step + 1:
                self._record_first_step(began)
            if self._profiler is not None:
                self._profiler.step()
            reason, is_window = self.stopper.agree(
                progress.step,
                wants_window=time.perf_counter() - self._window_time(begin) >= args.window_seconds,
            )
            if args.window_steps is not None:
                is_window = progress.step - window_step >= args.window_steps
            is_last = progress.step_in_epoch == self.plan.steps_per_epoch
            if is_window or is_last or reason is not None:
                # A window is read when the next one ends: by then the device has reached its end,
                # and training does not wait.
                if pending is not None:
                    self.end_window(*pending)
                end = self.meter.snapshot()
                pending = begin, end, window_step, progress.step
                begin, window_step = end, progress.step
            if args.checkpoint_steps and progress.step % args.checkpoint_steps == 0 and not is_last:
                self.save()
        if pending is not None:
            self.end_window(*pending)
        if self._bar is not None:
            self._bar.end()
        return reason

    def train_step(self, step: int) -> None:
        """Run one optimizer step on this rank's part of a batch, without waiting for the device."""
        batch_size = self.plan.batch_size(step)
        # A smaller batch would cause a recompilation.
        is_full = batch_size == self.plan.global_batch_size
        model = self.compiled if is_full else self.wrapped
        learning_rate = self.schedule.learning_rate(self.progress.step)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.zero_grad()
        for micro in self.source.micro_batches(step):
            with contextlib.ExitStack() as contexts:
                if not micro.is_last:
                    contexts.enter_context(parallel.no_gradient_sync(model))
                if micro.num_samples < 2 and self.plan.per_device_batch_size > micro.num_samples:
                    contexts.enter_context(parallel.frozen_batch_norm(model))
                with self.autocast:
                    losses, values = self.task.losses(model, micro.batch)
                loss = losses.sum()
                # DDP and FSDP divide the sum of the gradients by the world size. The factor makes
                # the gradient the mean over the batch, however it is divided. A placeholder has
                # weight 0.
                factor = self.dist.world_size / batch_size if micro.num_samples else 0.0
                self.scaler.scale(loss * factor).backward()
            if micro.num_samples:
                self.meter.add(micro.num_samples, loss.detach(), values)
        if self.args.max_gradient_norm is not None:
            # Clipping uses the norm of the unscaled gradient.
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_gradient_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.ema is not None:
            self.ema.update()

    def end_window(
        self, begin: metrics.Snapshot, end: metrics.Snapshot, first_step: int, last_step: int
    ) -> None:
        """Record a window of steps; raise DivergedError if its loss is not finite."""
        span, progress = self.meter.span(begin, end), self.progress
        self._check_finite(span.means["loss"], f"in steps {first_step + 1} to {last_step}")
        if self.outputs is None:
            return
        values = [(name, value, "") for name, value in span.means.items() if name == "loss"]
        # The first window of an attempt includes allocation, tuning and compilation.
        if first_step > self.first_step:
            values += [
                ("step_time", span.seconds / (last_step - first_step), "seconds"),
                ("window_throughput", *self.rate(span)),
                ("data_wait_share", span.data_wait_share, ""),
            ]
            values += settings.utilization(self, span)
        self.outputs.append(last_step, progress.epoch, *values)
        if self._bar is not None:
            self._bar.update(
                f"Epoch {progress.epoch}/{self.args.epochs}",
                progress.step_in_epoch,
                self.plan.steps_per_epoch,
                span.means["loss"],
                "{:.1f} {}".format(*self.rate(span)),
            )

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return the means of loss and metrics over the evaluation data, each sample once.

        Each rank evaluates its own samples, without padding, and only sums are reduced. The model
        is not the DDP wrapper, whose forward pass could start a collective.
        """
        parallel.average_batch_norm(self.model)
        self.model.eval()
        sums: dict[str, torch.Tensor] = {}
        with self.ema.applied() if self.ema is not None else contextlib.nullcontext():
            for batch in self.source.eval_batches():
                with self.autocast:
                    losses, values = self.task.losses(self.model, batch)
                for name, value in {"loss": losses, **values, "count": losses.new_ones(len(losses))}.items():
                    total = value.sum(dtype=torch.float64)
                    sums[name] = sums[name] + total if name in sums else total
        # A rank without samples has no sums, and does not know the names of the metrics.
        names = distributed.broadcast(list(sums))
        totals = [sums[name].item() if name in sums else 0.0 for name in names]
        totals = distributed.all_reduce(torch.tensor(totals, dtype=torch.float64)).tolist()
        *means, count = totals
        return {name: total / count for name, total in zip(names, means, strict=False)}

    def end_epoch(self) -> None:
        """Evaluate and report an epoch, decide whether it was the last, and save."""
        args, progress, epoch = self.args, self.progress, self.progress.epoch
        span = self.meter.read()
        self._check_finite(span.means["loss"], f"in epoch {epoch}")
        began = time.perf_counter()
        evaluation = self.evaluate()
        eval_seconds = time.perf_counter() - began
        self._check_finite(evaluation["loss"], f"in the evaluation of epoch {epoch}")
        progress.eval_seconds += eval_seconds
        learning_rate = self.schedule.learning_rate(progress.step - 1)
        rate = self.rate(span)
        if self.outputs is not None:
            self.outputs.append(
                progress.step,
                epoch,
                ("epoch_time", span.seconds, "seconds"),
                *((f"val_{name}", value, "") for name, value in evaluation.items()),
                ("throughput", *rate),
                *((f"train_{name}", value, "") for name, value in span.means.items()),
                ("learning_rate", learning_rate, ""),
                ("epoch_data_wait_share", span.data_wait_share, ""),
                ("eval_time", eval_seconds, "seconds"),
            )
        settings.record_memory(self, epoch)
        progress.end_epoch(span, evaluation, learning_rate)
        metric = self.task.best_metric
        is_reached = progress.has_reached_target(args)
        has_lost_patience = progress.has_lost_patience(args, metric)
        # All ranks have the same numbers; rank 0 decides, should rounding differ.
        progress.finished, is_best = distributed.broadcast(
            (is_reached or has_lost_patience or epoch >= args.epochs, progress.is_best(metric))
        )
        if self.dist.rank == 0:
            text = "{:.3f} {}".format(*rate)
            report.write(report.epoch_lines(epoch, args.epochs, span, evaluation, text))
            report.advise(
                span.data_wait_share, self.source.name, args.num_workers or 4, args.prefetch_factor
            )
            if is_reached:
                report.write(report.target_line(epoch))
            elif has_lost_patience:
                report.write(report.patience_line(epoch, metric, progress.best(metric) or 0.0))
        if progress.finished or is_best or epoch % args.checkpoint_epochs == 0:
            self.save(is_best=is_best)

    def rate(self, span: metrics.Span) -> tuple[float, str]:
        """Return the throughput over all ranks and its unit, such as `images/second`."""
        return (
            span.samples_per_second * self.task.units_per_sample,
            f"{self.task.unit}/second",
        )

    def save(self, *, is_best: bool = False) -> None:
        """Save a checkpoint if checkpoints are enabled; raise DivergedError instead of NaN."""
        if self.store is None:
            return
        began = time.perf_counter()
        self._check_finite(
            float(all_finite(self.model)), f"at step {self.progress.step}", what="a weight"
        )
        step = self.progress.step
        state = settings.capture(self)
        if self.mode == "fsdp":
            sharded = checkpoint.sharded_state(self.model, self.optimizer, self.ema)
            self.store.save_sharded(sharded, state, step=step, is_best=is_best)
        elif self.dist.rank == 0:
            self.store.save(state, step=step, is_best=is_best)
        seconds = time.perf_counter() - began
        self.progress.checkpoint_seconds += seconds
        if self.outputs is not None:
            self.outputs.append(step, self.progress.epoch, ("checkpoint_time", seconds, "seconds"))

    def resume(self) -> None:
        """Resume from the newest checkpoint, if there is one."""
        if self.store is None:
            return
        path = distributed.broadcast_result(lambda: settings.open_store(self))
        if path is None:
            return
        state = checkpoint.load(path)
        differences = settings.differences(state["settings"], self.settings)
        if differences and self.args.resume != "force":
            raise errors.CheckpointError(
                f"The checkpoint has other settings: {'; '.join(differences)}. Use the settings of"
                " the checkpoint, another --checkpoint-dir, or --resume force."
            )
        settings.restore(self, path, state)
        # --epochs, --target-accuracy and --patience may differ from those of the checkpoint.
        progress = self.progress
        progress.finished = (
            progress.epoch > self.args.epochs
            or progress.has_reached_target(self.args)
            or progress.has_lost_patience(self.args, self.task.best_metric)
        )
        if self.dist.rank == 0:
            changes = settings.changes(state["environment"], self.environment)
            report.write(
                report.resume_lines(
                    progress.step,
                    progress.epoch,
                    is_finished=progress.finished,
                    changes=[*differences, *changes],
                )
            )
