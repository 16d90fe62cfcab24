"""The points of a sweep as jobs: their changes of the spec, identities and names."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from orchestrator import config, errors, jobs, specs
from orchestrator.config import profiles
from orchestrator.specs import arguments, checks
from orchestrator.sweeps import batch_size, keys, records, resources
from orchestrator.toml import documents, schema, values
from orchestrator.toml.key_paths import KeyPath

_NAME_CHARACTERS = 60
_NODES, _GPUS_PER_NODE = ("resources", "nodes"), ("resources", "gpus_per_node")
_Arguments = Mapping[str, jobs.ArgumentValue]


def points_of(stored: Sequence[records.StoredPoint]) -> list[records.Point]:
    """Return stored points with their jobs."""
    shapes = {text: specs.from_json(text) for text in {point.shape_spec for point in stored}}

    def spec(point: records.StoredPoint) -> jobs.JobSpec:
        paths = {keys.split(key): value for key, value in point.changes.items()}
        given = {path[1]: value for path, value in paths.items() if path[0] == "args"}
        shape = shapes[point.shape_spec]
        return dataclasses.replace(shape, args=_merged(shape.args, given))

    return [
        records.Point(
            name=point.name,
            identity=point.identity,
            shape=point.shape,
            repeat=point.repeat,
            settings=point.settings,
            changes=point.changes,
            spec=spec(point),
        )
        for point in stored
    ]


def _merged(base: _Arguments, given: _Arguments) -> dict[str, jobs.ArgumentValue]:
    """Return the arguments of both; given ones replace the base's with the same flag."""
    flags = {arguments.flag(key) for key in given}
    kept = {key: value for key, value in base.items() if arguments.flag(key) not in flags}
    return {**kept, **given}


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


def _word(value: jobs.ArgumentValue) -> str:
    if isinstance(value, tuple):
        return "_".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


class Builder:
    """Builds the points of one sweep, and collects their problems."""

    def __init__(
        self,
        document: documents.Document,
        table: records.Table,
        profile: config.Profile,
        folder: Path | None,
    ) -> None:
        self.problems: list[errors.Problem] = []
        self._document = document
        self._base = documents.without(document, ("sweep",))
        self._table = table
        self._profile = profile
        self._folder = folder
        #: by the changes of the spec other than arguments; None: invalid
        self._shapes: dict[str, tuple[str, jobs.JobSpec] | None] = {}
        self._seen: dict[tuple[str, str], str] = {}
        args = self._base.data.get("args")
        self._args: dict[str, jobs.ArgumentValue] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in (args.items() if isinstance(args, Mapping) else ())
            if schema.fits(value, jobs.ArgumentValue)
        }
        self._batch = batch_size.batch_of(table, self._args)

    def points(self, settings: Iterable[records.Settings]) -> list[records.Point]:
        """Return the valid points, all once before any is repeated."""
        built = [point for each in settings if (point := self._point(each)) is not None]
        repeats = range(1, self._table.repeats + 1)
        return [_with_identity(point, repeat) for repeat in repeats for point in built]

    def shapes(self) -> dict[str, records.Shape]:
        """Return the shapes of the points, by key."""
        shapes: dict[str, records.Shape] = {}
        for key, spec in filter(None, self._shapes.values()):
            spec = dataclasses.replace(spec, args=self._args)
            totals = resources.resources_of(spec, self._profile)
            is_known = not totals.points_without_time_limit
            shapes[key] = records.Shape(
                key=key,
                spec=specs.to_json(spec),
                gpu_hours=totals.gpu_hours if is_known else None,
                node_hours=totals.node_hours if is_known else None,
            )
        return shapes

    def report(self, at: KeyPath, message: str) -> None:
        """Add a problem, once."""
        self._keep([self._document.problem(at, message)])

    def _keep(self, problems: Iterable[errors.Problem]) -> None:
        self.problems += [problem for problem in problems if problem not in self.problems]

    def _point(self, settings: records.Settings) -> records.Point | None:
        try:
            changes = self._changes(settings)
        except errors.SpecError as error:
            self._keep(error.problems)
            return None
        own = [setting for setting in settings if setting.path[0] == "args"]
        shape = self._shape(changes, own)
        if shape is None:
            return None
        key, spec = shape
        own = self._with_batch(spec, own)
        given = {setting.path[1]: setting.value for setting in own}
        places = {setting.path[1]: setting.at for setting in own}
        for paths, message in checks.each_argument(("args",), given):
            self.report(places[str(paths[0][1])], message)
        if own and (spec.launch.command or spec.launch.program):
            message = "cannot be varied: a launch.command or a program after -- takes no arguments"
            self.report(own[0].at, message)
        point = records.Point(
            name="",
            identity="",
            shape=key,
            repeat=1,
            settings={documents.dotted(setting.path): setting.value for setting in settings},
            changes={documents.dotted(setting.path): setting.value for setting in [*changes, *own]},
            spec=dataclasses.replace(spec, args=_merged(self._args, given)),
        )
        self._check_batch(point, settings)
        self._check_unique(point, settings[-1].at if settings else ("sweep",))
        return point

    def _changes(self, settings: records.Settings) -> list[records.Setting]:
        """Return the settings other than arguments, with nodes and GPUs per node for `gpus`."""
        changes = [s for s in settings if s.path[0] != "args" and s.path != records.GPUS]
        for setting in [setting for setting in settings if setting.path == records.GPUS]:
            for other in changes:
                if other.path in (_NODES, _GPUS_PER_NODE, ("resources", "gres")):
                    message = f"{documents.dotted(other.path)} is computed from gpus: remove it"
                    raise errors.SpecError([self._document.problem(setting.at, message)])
            partition = next(
                (str(other.value) for other in changes if other.path == ("job", "partition")),
                self._string("job", "partition") or self._profile.partition,
            )
            per_node = self._get(("resources", "gpus_per_node"))
            try:
                full = resources.gpus_of_full_node(self._table, per_node, partition, self._profile)
                assert isinstance(setting.value, int)
                shape = resources.nodes_and_gpus(setting.value, full)
            except records.InvalidError as exc:
                problem = self._document.problem(setting.at, str(exc))
                raise errors.SpecError([problem]) from exc
            changes += [
                records.Setting(path=path, value=number, at=setting.at)
                for path, number in zip((_NODES, _GPUS_PER_NODE), shape, strict=True)
            ]
        return changes

    def _get(self, path: Sequence[str]) -> object:
        value: object = self._base.data
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def _string(self, *path: str) -> str | None:
        value = self._get(path)
        return value if isinstance(value, str) else None

    def _shape(
        self, changes: list[records.Setting], own: list[records.Setting]
    ) -> tuple[str, jobs.JobSpec] | None:
        """Return a shape's key and its job; None if it is invalid."""
        pairs = [[documents.dotted(setting.path), setting.value] for setting in changes]
        changes_key = json.dumps(sorted(pairs, key=str))
        if changes_key not in self._shapes:
            self._shapes[changes_key] = None
            try:
                spec = self._spec(changes, own)
            except errors.SpecError as error:
                self._keep(error.problems)
            else:
                self._check_ranks(spec, changes)
                text = specs.to_json(dataclasses.replace(spec, args={}))
                key = hashlib.sha256(text.encode()).hexdigest()[:12]
                self._shapes[changes_key] = (key, spec)
        return self._shapes[changes_key]

    def _spec(self, changes: list[records.Setting], own: list[records.Setting]) -> jobs.JobSpec:
        document = self._base
        upper = documents.empty(document.origin(()).source)
        places = {arguments.flag(setting.path[1]): setting.at for setting in own}
        for argument in self._args:
            if (at := places.get(arguments.flag(argument))) is not None:
                self._check_not_fixed(("args", argument), at)
                document = documents.without(document, ("args", argument))
        for setting in changes:
            self._check_not_fixed(setting.path, setting.at)
        for setting in [*changes, *own]:
            origin = self._document.origin(setting.at)
            upper = documents.with_value(upper, setting.path, setting.value, origin)
        layered = specs.over(document, upper)
        spec = specs.build(layered, [], self._folder)
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

    def _check_not_fixed(self, path: tuple[str, ...], at: KeyPath) -> None:
        """Report a key that the sweep varies and the command line sets."""
        origin = self._base.origin(path)
        # A stored sweep has one origin for all keys, and was checked when it was read.
        is_given = origin.line is None and origin is not self._base.origin(())
        if is_given and self._get(path) is not None:
            message = f"is varied by the sweep, but {origin.source} sets {documents.dotted(path)}"
            self.report(at, f"{message}: remove one of them")

    def _check_ranks(self, spec: jobs.JobSpec, changes: list[records.Setting]) -> None:
        """Report keys that keep the number of ranks although the sweep varies the size."""
        given, launch = spec.resources, spec.launch
        sized = [setting for setting in changes if setting.path in (_NODES, _GPUS_PER_NODE)]
        varies_gpus = {setting.path for setting in sized} == {_NODES, _GPUS_PER_NODE}
        if launch.command is not None or not sized:
            return
        if varies_gpus and launch.launcher == "torchrun" and launch.nproc_per_node != "auto":
            message = 'sets the ranks per node, but the sweep varies gpus: use "auto"'
            self.report(("launch", "nproc_per_node"), message)
        if launch.launcher == "python" and given.nodes > 1:
            message = f"python starts one process, on the first of {given.nodes} nodes"
            self.report(sized[0].at, f"{message}: use the launcher torchrun or srun")
        if launch.launcher == "srun" and given.ntasks is not None:
            message = "sets the ranks, but the sweep varies them: remove it"
            self.report(("resources", "ntasks"), message)
        if launch.launcher == "srun" and varies_gpus and given.ntasks_per_node is not None:
            message = "sets the ranks per node, but the sweep varies gpus: remove it"
            self.report(("resources", "ntasks_per_node"), message)

    def _with_batch(self, spec: jobs.JobSpec, own: list[records.Setting]) -> list[records.Setting]:
        """Return the arguments with the batch that strong and weak scaling fix."""
        batch = self._batch
        if batch is None:
            return own
        if problem := batch.problem(spec):
            self.report(batch.at, problem)
        if problem or batch.samples is None:
            return own
        return [*(setting for setting in own if setting.path != batch.path), batch.setting(spec)]

    def _check_batch(self, point: records.Point, settings: records.Settings) -> None:
        batch = self._batch
        if batch is not None and (key := batch.contradiction(point.spec)):
            at = next((s.at for s in settings if s.path == ("args", key)), ("args", key))
            self.report(
                at,
                "weak scaling fixes the batch of each GPU, but this is the global batch: remove "
                f'it, or set sweep.batch_argument = "{key}" if it is the batch of each GPU',
            )
            return
        problem = batch_size.indivisible(point.spec, batch.global_samples if batch else None)
        if problem:
            # The problem belongs to the size, else to the batch.
            at = settings[0].at if settings else ("sweep",)
            sized = [s for s in settings if s.path in (records.GPUS, _NODES, _GPUS_PER_NODE)]
            batches = [s for s in settings if "batch" in s.path[-1]]
            self.report(next((s.at for s in [*sized, *batches]), at), problem)

    def _check_unique(self, point: records.Point, at: KeyPath) -> None:
        key = point.shape, json.dumps(sorted(point.spec.args.items()))
        words = [f"{name} = {schema.as_toml(value)}" for name, value in point.settings.items()]
        text = ", ".join(words) or "the spec unchanged"
        if key in self._seen:
            self.report(at, f"the point ({text}) is given twice, first as ({self._seen[key]})")
        else:
            self._seen[key] = text
