"""Train a classifier in one process or in several.

One process:                 python -m trainers.train
All GPUs of one node:        torchrun --standalone --nproc-per-node=4 -m trainers.train --epochs 20
Several nodes, on each:      torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d \\
                                 --rdzv-id=JOB --rdzv-endpoint=HOST:PORT -m trainers.train
One srun task per rank:      srun --ntasks-per-node=4 python -m trainers.train
                                 (with MASTER_ADDR and MASTER_PORT exported)
DataParallel, for comparison: python -m trainers.train --mode dp

In a job of orchestrator, environment variables name the metrics file (ORCHESTRATOR_METRICS_FILE),
the run folder, the array task and the attempt (ORCHESTRATOR_RUN_DIR, _TASK, _ATTEMPT), the stop
file, whose existence requests a stop (ORCHESTRATOR_STOP_FILE), and the requeue file, by which this
program requests a requeue (ORCHESTRATOR_REQUEUE_FILE). All of them are optional.
"""

import argparse
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence

import torch
from torch.distributed.elastic.multiprocessing import errors as elastic_errors

from trainers import (
    arguments,
    checkpoints,
    errors,
    evaluation,
    metrics,
    monitor,
    optimizers,
    outputs,
    ranks,
    report,
    runs,
    settings,
    steps,
    stopping,
    training,
)


def run(wanted: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Train according to the arguments, or resume an earlier attempt."""
    launch = runs.prepare(wanted, environ)
    watching = monitor.watch(
        launch.place,
        outputs.run_dir(wanted, environ),
        f"gpu{outputs.task_suffix(wanted.run_dir, environ)}",
        socket.gethostname(),
    )
    # Signals are recorded only after all ranks have joined: until then the launcher's SIGTERM must
    # end a rank at once if another rank could not start.
    with watching, ranks.process_group(launch.place, launch.device), launch.stopper.signals():
        stop = train(launch)
    launch.files.close()
    if stop is not None:
        end_stopped(launch, stop, environ)


def train(launch: runs.Launch) -> report.Stop | None:
    """Train within the process group; return None if training is complete, else why it stopped."""
    run, moving = runs.make(launch)
    progress = moving.progress
    resume(run, moving)
    first_step = progress.step
    if launch.place.rank == 0 and not progress.finished:
        report.write(report.start_lines(launch.place, launch.mode, launch.gpus_per_node))
    launch.stopper.begin(first_step)
    if run.profile is not None:
        run.profile.start()
    while not progress.finished:
        reason = train_epoch(run, moving, first_step)
        if reason is not None:
            save(run, moving)
            break
        end_epoch(run, moving)
    if run.profile is not None:
        run.profile.stop()
    if launch.store is not None:
        launch.store.wait()
        launch.store.close()
    write_result(run, moving)
    if not progress.finished:
        return report.Stop(reason=reason, step=progress.step, first_step=first_step)
    if launch.place.rank == 0:
        report.write(
            report.summary_lines(
                launch.place,
                num_samples=progress.num_samples,
                sample_name=run.source.data.sample_name,
                seconds=progress.seconds,
                gpus_per_node=launch.gpus_per_node,
                num_gpus=launch.num_gpus,
            )
        )
    return None


def train_epoch(
    run: runs.Run, moving: training.Training, first_step: int
) -> stopping.Reason | None:
    """Train the rest of an epoch; return why it was stopped, or None at its end."""
    wanted, progress = run.launch.wanted, moving.progress
    moving.wrapped.train()
    ranks.wait_for_all()
    if progress.step_in_epoch == 0:
        progress.window_begin = progress.step
        moving.epoch_meter.start()
        moving.window_meter.start()
    # Part of the measured time of the epoch.
    run.source.begin_epoch(progress.epoch, progress.step_in_epoch)
    while progress.step_in_epoch < run.plan.steps_per_epoch:
        begun = time.perf_counter()
        batch_size = run.plan.batch_size(progress.step_in_epoch)
        optimizers.set_learning_rate(moving.optimizer, run.schedule.learning_rate(progress.step))
        sums = steps.train_step(
            # A smaller batch would cause a recompilation.
            moving.compiled if batch_size == run.plan.global_batch_size else moving.wrapped,
            moving.optimizer,
            run.source.micro_batches(progress.step_in_epoch),
            batch_size=batch_size,
            rules=moving.rules,
        )
        moving.epoch_meter.add(sums)
        moving.window_meter.add(sums)
        progress.step += 1
        progress.step_in_epoch += 1
        if progress.step == first_step + 1:
            report_first_step(run, moving, begun)
        # An earlier attempt may have had a longer window.
        if progress.step - progress.window_begin >= wanted.window_steps:
            end_window(run, moving, is_warm=progress.window_begin > first_step)
        if run.profile is not None:
            run.profile.step()
        if wanted.checkpoint_steps and progress.step % wanted.checkpoint_steps == 0:
            save(run, moving)
        reason = run.launch.stopper.agreed(progress.step)
        if reason is not None:
            return reason
    return None


def report_first_step(run: runs.Run, moving: training.Training, begun: float) -> None:
    """Record the duration of this attempt's first step, which compiles, tunes and allocates."""
    if moving.device.type == "cuda":
        torch.cuda.synchronize(moving.device)
    seconds = time.perf_counter() - begun
    run.launch.files.append(
        metrics.at(
            moving.progress.step, moving.progress.epoch, ("first_step_time", seconds, "seconds")
        )
    )


def end_window(run: runs.Run, moving: training.Training, *, is_warm: bool) -> None:
    """Record the metrics of a window of steps, and start the next window."""
    progress = moving.progress
    span = moving.window_meter.read()
    run.launch.files.append(
        metrics.window_metrics(
            span,
            num_steps=progress.step - progress.window_begin,
            sample_name=run.source.data.sample_name,
            step=progress.step,
            epoch=progress.epoch,
            is_warm=is_warm,
        )
    )
    progress.window_begin = progress.step
    moving.window_meter.start()


def end_epoch(run: runs.Run, moving: training.Training) -> None:
    """Evaluate and report an epoch, decide whether it was the last, and save."""
    launch, progress = run.launch, moving.progress
    wanted, place, epoch = launch.wanted, launch.place, progress.epoch
    span, sample_name = moving.epoch_meter.read(), run.source.data.sample_name
    evaluation.average_batch_norm(moving.model, place.world_size)
    result = evaluation.evaluate(
        moving.model, run.source.data, place, moving.device, moving.rules.autocast
    )
    learning_rate = run.schedule.learning_rate(progress.step - 1)
    launch.files.append(
        metrics.epoch_metrics(
            span,
            result,
            learning_rate,
            sample_name=sample_name,
            step=progress.step,
            epoch=epoch,
        )
    )
    if moving.device.type == "cuda":
        peaks = ranks.gather_on_rank_0(peak_memory(moving.device), place)
        launch.files.append(metrics.memory_metrics(peaks, step=progress.step, epoch=epoch))
    progress.end_epoch(span, result, learning_rate)
    reached = ranks.decide_on_rank_0(progress.reached_target(run.goals))
    tired = ranks.decide_on_rank_0(progress.lost_patience(run.goals))
    progress.finished = reached or tired or epoch >= wanted.epochs
    if place.rank == 0:
        report.write(
            report.epoch_lines(epoch, wanted.epochs, span, result, sample_name=sample_name)
        )
        report.advise(span, run.source)
        if reached:
            report.write(report.target_line(epoch))
        elif tired:
            report.write(report.patience_line(epoch, progress.best_accuracy))
    if progress.finished:
        launch.files.append(
            metrics.summary_metrics(
                num_samples=progress.num_samples,
                sample_name=sample_name,
                seconds=progress.seconds,
                step=progress.step,
                epoch=epoch,
            )
        )
    if progress.finished or progress.is_best or epoch % wanted.checkpoint_epochs == 0:
        save(run, moving, is_best=progress.is_best)


def peak_memory(device: torch.device) -> tuple[int, int]:
    """Return the peak GPU memory allocated by tensors and reserved by PyTorch, in bytes."""
    return torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)


def save(run: runs.Run, moving: training.Training, *, is_best: bool = False) -> None:
    """Save a checkpoint if checkpoints are enabled; all ranks must call it."""
    if not run.launch.is_saved:
        return
    state = moving.state(dict(run.settings), dict(run.surroundings))
    if run.launch.store is not None:
        run.launch.store.save(state, step=moving.progress.step, is_best=is_best)


def resume(run: runs.Run, moving: training.Training) -> None:
    """Resume from the newest checkpoint, if there is one; all ranks must call it."""
    launch = run.launch
    if not launch.is_saved:
        return
    content = ranks.spread_from_rank_0(None if launch.store is None else launch.store.newest())
    if content is None:
        return
    state = checkpoints.load(content)
    differences = settings.differences(state["settings"], run.settings)
    if differences and launch.wanted.resume != "force":
        raise errors.CheckpointError(
            f"The checkpoint has other settings: {'; '.join(differences)}. Use the settings of the"
            " checkpoint, another --checkpoint-dir, or --resume force."
        )
    moving.restore(state, launch.wanted.seed)
    # --epochs, --target-accuracy and --patience may differ from those of the checkpoint.
    moving.progress.finished = (
        moving.progress.epoch > launch.wanted.epochs
        or moving.progress.reached_target(run.goals)
        or moving.progress.lost_patience(run.goals)
    )
    if launch.place.rank == 0:
        changes = settings.changes(state["surroundings"], run.surroundings)
        report.write(report.resume_lines(moving.progress, [*differences, *changes]))


def write_result(run: runs.Run, moving: training.Training) -> None:
    """Write result.json: the results, the settings and the environment."""
    progress = moving.progress
    run.launch.files.write_result(
        {
            "finished": progress.finished,
            "epochs": len(progress.history),
            "steps": progress.step,
            "num_samples": progress.num_samples,
            "train_seconds": progress.seconds,
            "samples_per_second": progress.num_samples / progress.seconds
            if progress.seconds
            else None,
            "best_val_accuracy": progress.best_accuracy,
            "history": progress.history,
            "settings": run.settings,
            "arguments": {name: str(value) for name, value in vars(run.launch.wanted).items()},
            "surroundings": run.surroundings,
        }
    )


def end_stopped(launch: runs.Launch, stop: report.Stop, environ: Mapping[str, str]) -> None:
    """Request a requeue of a stopped run; raise StoppedError if the run will not be requeued."""
    asked = launch.is_saved and stopping.request_requeue(
        environ, step=stop.step, first_step=stop.first_step, is_writer=launch.place.rank == 0
    )
    if launch.place.rank == 0:
        report.write(report.stop_line(stop, is_saved=launch.is_saved))
    if not asked:
        saved = "checkpoint saved" if launch.is_saved else "no checkpoint saved (no --run-dir)"
        raise errors.StoppedError(f"stopped after step {stop.step} ({stop.words}); {saved}.")


@elastic_errors.record
def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line; an expected error is one line on stderr and an exit code."""
    try:
        run(arguments.parse_arguments(argv), os.environ)
    except errors.TrainerError as error:
        sys.stderr.write(f"trainers.train: error: {error}\n")
        sys.stderr.flush()
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
