"""The points of a sweep as jobs: their changes of the spec, identities and names."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from orchestrator import config, errors, jobs, specs
from orchestrator.config import profiles
from orchestrator.specs import checks, ranks
from orchestrator.sweeps import batch_size, keys, records, resources, table
from orchestrator.toml import documents, schema, values
from orchestrator.toml.key_paths import KeyPath

_NAME_CHARACTERS = 60
_NODES, _GPUS_PER_NODE = ("resources", "nodes"), ("resources", "gpus_per_node")
_PARTITION = ("job", "partition")
_Arguments = Mapping[str, jobs.ArgumentValue]


def points_of(stored: Sequence[records.StoredPoint]) -> list[records.Point]:
    specs_by_text = {text: specs.from_json(text) for text in {p.shape.spec for p in stored}}

    def spec(point: records.StoredPoint) -> jobs.JobSpec:
        paths = {keys.split(key): value for key, value in point.changes.items()}
        own = {path[1]: value for path, value in paths.items() if path[0] == "args"}
        shared = specs_by_text[point.shape.spec]
        # Earlier versions stored `[args]` as the file spells them.
        return dataclasses.replace(shared, args=_merged(_canonical(shared.args), own))

    return [records.Point(**vars(point), spec=spec(point)) for point in stored]


def with_code(
    points: Sequence[records.Point], codes: Mapping[str, jobs.Code]
) -> tuple[records.Point, ...]:
    """Return the points with the code of their shapes, by key; a shape keeps its key."""

    def shape(point: records.Point) -> records.Shape:
        spec = dataclasses.replace(specs.from_json(point.shape.spec), code=codes[point.shape.key])
        return dataclasses.replace(point.shape, spec=specs.to_json(spec))

    shapes = {point.shape.key: shape(point) for point in {p.shape.key: p for p in points}.values()}
    return tuple(
        dataclasses.replace(
            point,
            shape=shapes[point.shape.key],
            spec=dataclasses.replace(point.spec, code=codes[point.shape.key]),
        )
        for point in points
    )


def _canonical(args: _Arguments) -> _Arguments:
    return {keys.argument(key)[1]: value for key, value in args.items()}


def _merged(base: _Arguments, own: _Arguments) -> _Arguments:
    return {**{key: value for key, value in base.items() if key not in own}, **own}


def _with_identity(point: records.Point, repeat: int) -> records.Point:
    text = json.dumps([sorted(point.changes.items()), repeat])
    identity = hashlib.sha256(text.encode()).hexdigest()[:12]
    words = "-".join(
        f"{key.rpartition('.')[2]}{_word(value)}" for key, value in sorted(point.settings.items())
    )
    words = values.fitting_name(words)[:_NAME_CHARACTERS].rstrip("-._")
    parts = [words, f"r{repeat}" if repeat > 1 else "", identity[:8]]
    name = "-".join(filter(None, parts))
    return dataclasses.replace(point, name=name, identity=identity, repeat=repeat)


def _sizes(changes: Iterable[records.Setting]) -> list[records.Setting]:
    """Return the settings that give the number of nodes or GPUs."""
    return [setting for setting in changes if setting.path in (_NODES, _GPUS_PER_NODE)]


def _word(value: jobs.ArgumentValue) -> str:
    if isinstance(value, tuple):
        return "_".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


class Builder:
    """Builds the points of one sweep, and reports their problems."""

    def __init__(
        self,
        document: documents.Document,
        sweep_table: records.Table,
        profile: config.Profile,
        folder: Path | None,
        problems: table.Problems,
    ) -> None:
        self._document = document
        self._base = documents.without(document, ("sweep",))
        self._table = sweep_table
        self._profile = profile
        self._folder = folder
        self._problems = problems
        #: by the changes of the spec other than arguments; None: invalid
        self._shapes: dict[str, tuple[records.Shape, jobs.JobSpec] | None] = {}
        self._known: dict[tuple[str, str], str] = {}
        args = self._base.data.get("args")
        #: as the file spells them
        self._args: dict[str, jobs.ArgumentValue] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in (args.items() if isinstance(args, Mapping) else ())
            if schema.fits(value, jobs.ArgumentValue)
        }
        self._base_args = _canonical(self._args)
        self._batch = batch_size.batch_of(sweep_table, self._args)

    def points(self, settings: Sequence[records.Settings]) -> list[records.Point]:
        """Return the valid points, all once before any is repeated."""
        self._check_not_set(settings)
        built = [point for each in settings if (point := self._point(each)) is not None]
        repeats = range(1, self._table.repeats + 1)
        return [_with_identity(point, repeat) for repeat in repeats for point in built]

    def _check_not_set(self, settings: Iterable[records.Settings]) -> None:
        """Report keys that the sweep varies and the command line sets."""
        varied: dict[tuple[str, ...], KeyPath] = {}
        for setting in itertools.chain.from_iterable(settings):
            varied.setdefault(setting.path, setting.at)
        if (at := varied.get(records.GPUS)) is not None:
            varied |= {_NODES: at, _GPUS_PER_NODE: at}
        spelled = {keys.argument(key): ("args", key) for key in self._args}
        for path, at in varied.items():
            path = spelled.get(path, path)
            origin = self._base.origin(path)
            # A stored sweep has one origin for all keys, and was checked when it was read.
            is_set = origin.line is None and origin is not self._base.origin(())
            if is_set and self._base.get(path) is not None:
                source = f"{origin.source} sets {documents.dotted(path)}"
                message = f"is varied by the sweep, but {source}: remove one of them"
                self._problems.add(at, message)

    def _point(self, settings: records.Settings) -> records.Point | None:
        own = [setting for setting in settings if setting.path[0] == "args"]
        try:
            changes = self._changes(settings)
            shape, spec = self._shape(changes, own)
        except errors.SpecError as error:
            self._problems.keep(error.problems)
            return None
        own = self._with_batch(spec, own)
        given = {setting.path[1]: setting.value for setting in own}
        origins = {setting.path[1]: setting.at for setting in own}
        for paths, message in checks.argument_findings(("args",), given):
            self._problems.add(origins[str(paths[0][1])], message)
        if own and (spec.launch.command or spec.launch.program):
            message = "cannot be varied: a launch.command or a program after -- takes no arguments"
            self._problems.add(own[0].at, message)
        point = records.Point(
            name="",
            identity="",
            shape=shape,
            repeat=1,
            settings={documents.dotted(setting.path): setting.value for setting in settings},
            changes={documents.dotted(setting.path): setting.value for setting in [*changes, *own]},
            spec=dataclasses.replace(spec, args=_merged(spec.args, given)),
        )
        self._check_batch(point, settings)
        self._check_unique(point, settings[-1].at if settings else ("sweep",))
        return point

    def _changes(self, settings: records.Settings) -> list[records.Setting]:
        """Return the settings other than arguments, with nodes and GPUs per node for `gpus`."""
        changes = [s for s in settings if s.path[0] != "args" and s.path != records.GPUS]
        gpus = next((setting for setting in settings if setting.path == records.GPUS), None)
        if gpus is None:
            return changes
        given = {setting.path: setting.value for setting in changes}
        partition = given.get(_PARTITION, self._base.get(_PARTITION))
        partition = self._profile.partition if partition is None else partition
        try:
            for path in (_NODES, _GPUS_PER_NODE, ("resources", "gres")):
                if path in given:
                    raise records.InvalidError(
                        f"{documents.dotted(path)} is computed from gpus: remove it"
                    )
            full = resources.gpus_of_full_node(
                self._table, self._base.get(_GPUS_PER_NODE), str(partition or ""), self._profile
            )
            assert isinstance(gpus.value, int)
            shape = resources.nodes_and_gpus(gpus.value, full)
        except records.InvalidError as exc:
            raise errors.SpecError([self._document.problem(gpus.at, str(exc))]) from exc
        return [
            *changes,
            *(
                records.Setting(path=path, value=number, at=gpus.at)
                for path, number in zip((_NODES, _GPUS_PER_NODE), shape, strict=True)
            ),
        ]

    def _shape(
        self, changes: list[records.Setting], own: list[records.Setting]
    ) -> tuple[records.Shape, jobs.JobSpec]:
        """Return a shape and its job with the arguments of `[args]`; SpecError.

        own: the arguments of its first point.
        """
        pairs = [[documents.dotted(setting.path), setting.value] for setting in changes]
        changes_key = json.dumps(sorted(pairs, key=str))
        if changes_key not in self._shapes:
            self._shapes[changes_key] = None
            spec = dataclasses.replace(self._spec(changes, own), args=self._base_args)
            self._check_ranks(spec, changes)
            is_open = ranks.launcher_of(spec.launch) == "auto"
            if _sizes(changes) and ranks.has_ranks(spec) and is_open:
                # All sizes start alike: their times are compared, and the program expects ranks.
                spec = dataclasses.replace(
                    spec, launch=dataclasses.replace(spec.launch, launcher="torchrun")
                )
            text = specs.to_json(dataclasses.replace(spec, args={}))
            hours = resources.hours_of(spec, self._profile)
            shape = records.Shape(
                key=hashlib.sha256(text.encode()).hexdigest()[:12],
                spec=specs.to_json(spec),
                gpu_hours=None if hours is None else hours[0],
                node_hours=None if hours is None else hours[1],
            )
            self._shapes[changes_key] = shape, spec
        known = self._shapes[changes_key]
        if known is None:
            # Its problems are reported already.
            raise errors.SpecError([])
        return known

    def _spec(self, changes: list[records.Setting], own: list[records.Setting]) -> jobs.JobSpec:
        upper = documents.empty(self._base.origin(()).source)
        for setting in changes:
            origin = self._document.origin(setting.at)
            upper = documents.with_value(upper, setting.path, setting.value, origin)
        layered = complete = specs.over(self._base, upper)
        if not layered.get(("launch", "command")) and not layered.get(("launch", "program")):
            # [retry.changes] may multiply an argument that only the sweep sets.
            for setting in own:
                if not any(checks.argument_findings((), {setting.path[1]: setting.value})):
                    complete = documents.with_value(complete, setting.path, setting.value, "")
        spec = specs.build(complete, [], self._folder)
        try:
            return profiles.fill(spec, self._profile)
        except errors.SpecError as error:
            # Only the key of the spec has a line.
            raise errors.SpecError(
                [
                    layered.problem(tuple(problem.key.split(".")), problem.message)
                    for problem in error.problems
                ]
            ) from error

    def _check_ranks(self, spec: jobs.JobSpec, changes: list[records.Setting]) -> None:
        """Report keys that keep the number of ranks although the sweep varies the size."""
        given, launch = spec.resources, spec.launch
        sized = _sizes(changes)
        is_own = launch.launcher == "auto" and not ranks.has_ranks(spec)
        if launch.command is not None or is_own or not sized:
            return
        varies_gpus = {setting.path for setting in sized} == {_NODES, _GPUS_PER_NODE}
        acts_like = ranks.acts_like(launch)
        if acts_like == "python" and given.nodes > 1:
            message = f"{launch.launcher} starts one process, on the first of {given.nodes} nodes"
            self._problems.add(sized[0].at, f"{message}: use the launcher torchrun or srun")
        per_node = varies_gpus and launch.nproc_per_node != "auto"
        fixed = {
            "torchrun": {("launch", "nproc_per_node"): per_node},
            "srun": {
                ("resources", "ntasks"): given.ntasks is not None,
                ("resources", "ntasks_per_node"): varies_gpus and given.ntasks_per_node is not None,
            },
        }
        launcher = "torchrun" if acts_like == "auto" else acts_like
        for key, is_fixed in fixed.get(launcher, {}).items():
            if is_fixed:
                self._problems.add(key, "sets the ranks, but the sweep varies them: remove it")

    def _with_batch(self, spec: jobs.JobSpec, own: list[records.Setting]) -> list[records.Setting]:
        """Return the arguments with the batch that strong and weak scaling fix."""
        batch = self._batch
        if batch is None:
            return own
        if problem := batch.problem(spec):
            self._problems.add(batch.at, problem)
        if problem or batch.samples is None:
            return own
        return [*(setting for setting in own if setting.path != batch.path), batch.setting(spec)]

    def _check_batch(self, point: records.Point, settings: records.Settings) -> None:
        batch = self._batch
        if batch is not None and batch.kind == "weak" and batch.path != batch_size.GLOBAL:
            ats = [setting.at for setting in settings if setting.path == batch_size.GLOBAL]
            ats += [("args", key) for key in self._args if keys.argument(key) == batch_size.GLOBAL]
            if ats:
                self._problems.add(
                    ats[0],
                    "weak scaling fixes the batch of each GPU, but this is the global batch: "
                    'remove it, or set sweep.batch_argument = "batch_size" if it is the batch of '
                    "each GPU",
                )
                return
        problem = batch_size.indivisible(point.spec, batch.global_samples if batch else None)
        if problem:
            # The problem belongs to the size, else to the batch.
            at = settings[0].at if settings else ("sweep",)
            sized = [s for s in settings if s.path in (records.GPUS, _NODES, _GPUS_PER_NODE)]
            batches = [s for s in settings if "batch" in s.path[-1]]
            self._problems.add(next((s.at for s in [*sized, *batches]), at), problem)

    def _check_unique(self, point: records.Point, at: KeyPath) -> None:
        key = point.shape.key, json.dumps(sorted(point.spec.args.items()))
        words = [f"{name} = {schema.as_toml(value)}" for name, value in point.settings.items()]
        text = ", ".join(words) or "the spec unchanged"
        if key in self._known:
            self._problems.add(
                at, f"the point ({text}) is given twice, first as ({self._known[key]})"
            )
        else:
            self._known[key] = text
