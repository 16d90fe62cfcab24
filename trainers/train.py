"""Train a classifier, or a task of your own, in one process or in several.

All GPUs of a node:      torchrun --standalone --nproc-per-node=4 -m trainers.train
A task of your own:      python -m trainers.train --task tasks.py:MyTask

In a job of orchestrator, ORCHESTRATOR_METRICS_FILE names the metrics file, _RUN_DIR the run folder,
_TASK the array task, _ATTEMPT the attempt, _STOP_FILE the file whose existence requests a stop, and
_REQUEUE_FILE the file by which this program requests a requeue. All of them are optional.
"""

import argparse
import contextlib
import gc
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.distributed import fsdp
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
    state,
    stop,
    tasks,
)
from trainers.data import batches, loading
from trainers.tools import monitor, profiling


class Trainer:
    """A training on this rank. All ranks call the same methods in the same order."""

    def __init__(
        self,
        args: argparse.Namespace,
        dist: distributed.DistInfo,
        device: torch.device,
        mode: str = "single",
        gpu_ids: Sequence[int] = (),
        stopper: stop.Stopper | None = None,
        outputs: metrics.Outputs | None = None,
        store: checkpoint.Store | None = None,
    ) -> None:
        self.args, self.dist, self.device, self.mode = args, dist, device, mode
        self.stopper, self.outputs, self.store = stopper or stop.Stopper(), outputs, store
        # With DataParallel one process uses all GPUs of the node.
        self.num_devices = max(1, len(gpu_ids)) if mode == "dp" else dist.world_size
        self.precision = optim.resolve_precision(args.precision, device)
        self.compile_mode = parallel.resolve_compile(args.compile, mode, device)
        optim.configure_torch(self.precision, deterministic=args.deterministic)

        self.environment = report.environment(self)
        self.task = tasks.load(args, dist)
        train_data, eval_data = self.task.train_data(), self.task.eval_data()
        fingerprint = state.data_fingerprint(self, train_data, eval_data)
        num_samples = batches.num_samples_of(train_data)
        self.plan = batches.make_plan(args, num_samples, dist, self.num_devices)
        self.schedule = optim.Schedule(args, self.plan)
        # The same weights on every rank, also without DDP, which broadcasts those of rank 0.
        torch.manual_seed(args.seed)
        self.model = self.task.model()
        memory_format = parallel.memory_format(mode, self.model)
        self.model.to(device=device, memory_format=memory_format)
        torch.manual_seed(batches.seed_of("dropout", args.seed, dist.rank, 0))
        self.source = loading.Source(args, train_data, eval_data, self.plan, device, memory_format)
        self.description = report.describe(self, train_data, eval_data)
        self.peak_rate = profiling.peak_samples_per_second(self)
        self.wrapped = parallel.wrap(self, gpu_ids)
        self.compiled = parallel.compile_model(self.wrapped, self.compile_mode)
        self.optimizer = optim.make_optimizer(args, self.wrapped.parameters())
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "fp16")
        self.autocast = optim.autocast(self.precision, device)
        self.ema = None
        if args.ema_decay is not None:
            self.ema = optim.ExponentialMovingAverage(self.model, args.ema_decay)
        self.meter = metrics.Meter(device, self.source)
        self.progress = state.Progress()
        self.settings = state.decisive(self, fingerprint)
        self.first_step = self.num_windows = 0
        self.log = report.Log(args.log_seconds, outputs, dist.rank)
        self.profiler = profiling.make_profiler(outputs, args.profile_steps)

    def train(self) -> stop.Reason | None:
        """Train until the end or a stop; return why it stopped, or None if it is complete."""
        self.resume()
        self.first_step = self.progress.step
        self.stopper.begin(self.first_step)
        if not self.progress.finished:
            self.log.print(report.start_lines(self))
        reason, ending = None, "failed"
        # Garbage is collected after each epoch only: otherwise ranks pause at different times.
        # PyTorch's own objects are not examined, which would take 0.2 s.
        gc.disable()
        gc.freeze()
        try:
            with self.profiler or contextlib.nullcontext():
                while not self.progress.finished and reason is None:
                    reason = self.train_epoch()
                    if reason is None:
                        self.end_epoch()
                    else:
                        self.save()
            ending = "complete" if reason is None else "stopped"
        except errors.DivergedError:
            ending = "diverged"
            raise
        finally:
            gc.unfreeze()
            gc.enable()
            self.log.end()
            if ending != "failed":
                self._close(ending)
        if reason is not None:
            saved = "checkpoint saved" if self.store else "no checkpoint saved (no --run-dir)"
            step = self.progress.step
            self.log.print(f"Stopped after step {step}, because {reason.value}: {saved}.\n")
        return reason

    def train_epoch(self) -> stop.Reason | None:
        """Train the rest of an epoch; return why it was stopped, or None at its end."""
        args, progress = self.args, self.progress
        self.wrapped.train()
        distributed.barrier()
        if progress.step_in_epoch == 0:
            self.meter.start(metrics.Span())
        # Part of the measured time of the epoch.
        self.source.begin_epoch(progress.epoch, progress.step_in_epoch)
        begin = self.meter.snapshot(progress.step)
        window_began = time.perf_counter()
        window: tuple[metrics.Snapshot, metrics.Snapshot] | None = None
        reason = None
        while progress.step_in_epoch < self.plan.steps_per_epoch and reason is None:
            began = time.perf_counter()
            self.train_step()
            if progress.step == self.first_step + 1:
                self._report_first_step(began)
            if self.profiler is not None:
                self.profiler.step()
            reason, ends_window = self.stopper.agree(
                progress.step,
                wants_window=time.perf_counter() - window_began >= args.window_seconds,
            )
            if args.window_steps is not None:
                ends_window = progress.step - begin.step >= args.window_steps
            is_last = progress.step_in_epoch == self.plan.steps_per_epoch
            if ends_window or is_last or reason is not None:
                # A window is reported at the end of the next one: by then the device has completed
                # it, so training does not wait.
                if window is not None:
                    self.report_window(*window)
                window = begin, self.meter.snapshot(progress.step)
                begin, window_began = window[1], time.perf_counter()
            # A stop saves as well.
            is_due = args.checkpoint_steps and progress.step % args.checkpoint_steps == 0
            if is_due and not is_last and reason is None:
                self.save()
        if window is not None:
            self.report_window(*window)
        return reason

    def train_step(self) -> None:
        """Run the next optimizer step, without waiting for the device."""
        self.meter.begin_step()
        step = self.progress.step_in_epoch
        batch_size = self.plan.batch_size(step)
        # A smaller batch would cause a recompilation.
        is_full = batch_size == self.plan.global_batch_size
        model = self.compiled if is_full else self.wrapped
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.learning_rate(self.progress.step)
        self.optimizer.zero_grad()
        if self.args.compile == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        for micro, batch in self.source.micro_batches(step):
            with parallel.pass_contexts(
                self.wrapped,
                is_last=micro.is_last,
                # Of a single sample, batch norm cannot compute a variance.
                is_batch_norm_frozen=micro.num_samples < min(2, self.plan.per_device_batch_size),
            ):
                with self.autocast:
                    losses, values = tasks.losses(self.task, model, batch, micro.num_samples)
                # DDP and FSDP divide the sum of the gradients by the world size. The weight makes
                # the gradient the mean over the batch, however it is divided. A placeholder has
                # weight 0.
                weight = self.dist.world_size / batch_size if micro.num_samples else 0.0
                if micro.is_last and self.mode == "ddp":
                    self.meter.end_step(losses)
                self.scaler.scale(losses).backward(torch.full_like(losses, weight))
            self.meter.add(micro.num_samples, losses, values)
        if self.args.max_gradient_norm is not None:
            # Clipping uses the norm of the unscaled gradient.
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_gradient_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.ema is not None:
            self.ema.update()
        self.progress.step += 1
        self.progress.step_in_epoch += 1

    def report_window(self, begin: metrics.Snapshot, end: metrics.Snapshot) -> None:
        """Record a window of steps; raise DivergedError if its loss is not finite."""
        span = self.meter.span(begin, end)
        loss = span.means["loss"]
        errors.check_loss(loss, f"steps {begin.step + 1} to {end.step}")
        rate = self._rate(span)
        title = f"Epoch {self.progress.epoch}/{self.args.epochs}"
        step = self.progress.step_in_epoch - self.progress.step + end.step
        self.log.update(title, step, self.plan.steps_per_epoch, loss, "{:.1f} {}".format(*rate))
        values: list[metrics.Value] = [("loss", loss, "")]
        # The first window of an attempt includes allocation, tuning and compilation.
        if begin.step > self.first_step:
            values += [
                ("step_time", span.seconds / (end.step - begin.step), "seconds"),
                ("window_throughput", *rate),
                ("data_wait_share", span.data_wait_share, ""),
            ]
            if self.peak_rate is not None:
                share = span.num_samples / span.seconds / self.num_devices / self.peak_rate
                values.append(("mfu", share, ""))
            # Fewer lines of many ranks: of a window in 128 with 512 ranks.
            if end.steps and self.num_windows % max(1, self.dist.world_size // 4) == 0:
                times = enumerate(distributed.gather(end.compute_seconds()))
                values += [("compute_time", each, "seconds", rank) for rank, each in times]
            self.num_windows += 1
        self._record(end.step, *values)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return the means of loss and metrics over the evaluation data, each sample once."""
        # Not of the DDP wrapper, whose forward pass could start a collective.
        parallel.average_batch_norm(self.model)
        self.model.eval()
        meter = metrics.Meter(self.device, self.source)
        with self.ema.applied() if self.ema is not None else contextlib.nullcontext():
            for batch, is_counted in loading.in_step(
                self.source.eval_batches(), is_sharded=self.mode == "fsdp"
            ):
                with self.autocast:
                    losses, values = tasks.losses(self.task, self.model, batch)
                meter.add(len(losses) if is_counted else 0, losses, values)
        if isinstance(self.model, fsdp.FSDPModule):
            # Its forward pass without a backward pass keeps the whole weights of the root module.
            self.model.reshard()
        span = meter.read()
        if not span.num_samples:
            raise errors.UsageError("The evaluation data has no samples.")
        return span.means

    def end_epoch(self) -> None:
        """Evaluate and report an epoch, decide whether it was the last, and save."""
        args, progress, epoch = self.args, self.progress, self.progress.epoch
        span = self.meter.read()
        began = time.perf_counter()
        evaluation = self.evaluate()
        eval_seconds = time.perf_counter() - began
        errors.check_loss(evaluation["loss"], f"the evaluation of epoch {epoch}")
        progress.eval_seconds += eval_seconds
        learning_rate, rate = self.schedule.learning_rate(progress.step - 1), self._rate(span)
        self._record(
            progress.step,
            ("epoch_time", span.seconds, "seconds"),
            *((f"val_{name}", value, "") for name, value in evaluation.items()),
            ("throughput", *rate),
            *((f"train_{name}", value, "") for name, value in span.means.items()),
            ("learning_rate", learning_rate, ""),
            ("epoch_data_wait_share", span.data_wait_share, ""),
            ("eval_time", eval_seconds, "seconds"),
        )
        if self.device.type == "cuda":
            own = [
                ("gpu_memory_allocated_peak", torch.cuda.max_memory_allocated(self.device)),
                ("gpu_memory_reserved_peak", torch.cuda.max_memory_reserved(self.device)),
            ]
            for rank, peaks in enumerate(distributed.gather(own)):
                self._record(progress.step, *((*peak, "bytes", rank) for peak in peaks))
        progress.end_epoch(span, evaluation, learning_rate)
        metric = self.task.best_metric
        # All ranks decide the same: their numbers come from the same reductions.
        why = progress.check_finished(args, metric)
        text = "{:.3f} {}".format(*rate)
        early = f"{why}. Early stopping after epoch {epoch}.\n" if why else ""
        self.log.print(report.epoch_lines(epoch, args.epochs, span, evaluation, text) + early)
        if self.dist.rank == 0 and epoch == min(2, args.epochs):
            report.advise(span.data_wait_share, self)
        if progress.finished:
            total = progress.num_samples * self.task.units_per_sample / progress.seconds
            self._record(
                progress.step,
                ("total_time", progress.seconds, "seconds"),
                ("total_throughput", total, rate[1]),
            )
        is_best = progress.is_best(metric)
        if progress.finished or is_best or epoch % args.checkpoint_epochs == 0:
            self.save(is_best=is_best)
        gc.collect()

    def save(self, *, is_best: bool = False) -> None:
        """Save a checkpoint, if enabled; raise DivergedError instead of saving NaN."""
        if self.store is None:
            return
        began, step = time.perf_counter(), self.progress.step
        if not state.is_finite(self.model):
            raise errors.DivergedError(f"a weight became NaN or infinite by step {step}")
        rest = state.capture(self)
        if self.mode == "fsdp":
            self.store.save_sharded(state.weights(self), rest, step=step, is_best=is_best)
        elif self.dist.rank == 0:
            self.store.save(rest, step=step, is_best=is_best)
        seconds = time.perf_counter() - began
        self.progress.checkpoint_seconds += seconds
        self._record(step, ("checkpoint_time", seconds, "seconds"))

    def resume(self) -> None:
        """Continue from the newest intact checkpoint, if any; raise CheckpointError."""
        if self.store is None:
            return
        path = self.store.newest() if self.dist.rank == 0 else None
        path, saved = distributed.broadcast((path, path and checkpoint.load(path)))
        if path is None:
            return
        changes = state.restore(self, path, saved)
        metric = self.task.best_metric
        is_at_end = self.dist.rank == 0 and not self.progress.step_in_epoch
        if is_at_end and self.progress.is_best(metric):
            # A run that was killed may have saved it without marking it.
            self.store.mark_best(path)
        # --epochs, --target-accuracy and --patience may differ from those of the checkpoint.
        self.progress.check_finished(self.args, metric)
        self.log.print(report.resume_lines(self.progress, changes))

    def _rate(self, span: metrics.Span) -> tuple[float, str]:
        """Return the throughput over all ranks and its unit, such as `images/second`."""
        per_second = span.num_samples / span.seconds * self.task.units_per_sample
        return per_second, f"{self.task.unit}/second"

    def _record(self, step: int, *values: metrics.Value) -> None:
        if self.outputs is not None:
            self.outputs.append(step, self.progress.last_epoch, *values)

    def _report_first_step(self, began: float) -> None:
        """Record the first step of this attempt, which compiles, tunes and allocates."""
        self.meter.synchronize()
        seconds = time.perf_counter() - began
        self._record(self.progress.step, ("first_step_time", seconds, "seconds"))
        self.compile_mode = parallel.check_compiled(self.compile_mode, self.dist.rank)

    def _close(self, ending: str) -> None:
        """Write result.json and the summary; raise CheckpointError if the last save failed."""
        failure = self.store.wait() if self.store is not None else None
        if self.outputs is not None:
            self.outputs.write_result(report.result(self, ending))
        if ending == "complete":
            self.log.print(report.summary_lines(self, is_success=failure is None))
        if failure is not None and ending != "diverged":
            raise failure


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Train on this rank as the arguments say; raise TrainerError if that fails or is stopped."""
    dist = distributed.read_dist_info(environ)
    num_gpus = torch.cuda.device_count()
    mode = parallel.resolve_mode(args, dist, num_gpus)
    device = distributed.select_device(args.device, dist, num_cuda_devices=num_gpus)
    gpu_ids = list(args.gpu_ids or range(num_gpus)) if mode == "dp" else []
    if gpu_ids:
        device = torch.device("cuda", gpu_ids[0])
    batches.batch_size(args, len(gpu_ids) or dist.world_size)
    outputs = metrics.open_outputs(args, environ, dist)
    store = checkpoint.open_store(args, environ, dist, outputs, sharded=mode == "fsdp")
    stopper = stop.read_stopper(environ, margin_seconds=args.stop_margin_seconds)
    # Signals are recorded only after all ranks have joined: until then the launcher's SIGTERM must
    # end a rank at once if another rank could not start.
    path = metrics.file_path(args.run_dir, environ)
    with (
        monitor.watch(dist, path and metrics.beside(path, "gpu", f".{socket.gethostname()}")),
        distributed.process_group(dist, device),
        stopper.signals(is_announced=dist.rank == 0),
    ):
        trainer = Trainer(args, dist, device, mode, gpu_ids, stopper, outputs, store)
        reason, step = trainer.train(), trainer.progress.step
        num_steps = step - trainer.first_step
        # DDP's modules must be released before the process group ends.
        del trainer
    if outputs is not None:
        outputs.close()
    if reason is not None:
        # Without a checkpoint a requeue would start from scratch.
        file = environ.get("ORCHESTRATOR_REQUEUE_FILE") if store is not None else None
        stop.end_attempt(reason, file, step, num_steps, dist.rank)


@elastic_errors.record
def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line; an expected error is one line on stderr and an exit code."""
    try:
        run(arguments.parse_arguments(argv), os.environ)
    except errors.TrainerError as error:
        # A stop has been reported.
        if str(error):
            print(f"trainers.train: error: {error}\n", end="", file=sys.stderr, flush=True)
        if isinstance(error, errors.LostRankError):
            # torchrun looks at its ranks every 0.1 s, and names the first of those that ended
            # since: the rank that failed must be seen before this one.
            time.sleep(1)
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
