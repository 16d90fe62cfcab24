"""A sweep's points as jobs: what each changes in the spec, its identity and its name."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from orchestrator import config, errors, jobs, specs
from orchestrator.config import profiles
from orchestrator.specs import arguments, checks
from orchestrator.sweeps import batch_size, keys, records
from orchestrator.sweeps import resources as sizes
from orchestrator.toml import documents, key_paths, schema, values

_NAME_CHARACTERS = 60
_NODES, _GPUS_PER_NODE = ("resources", "nodes"), ("resources", "gpus_per_node")


def identity(changes: Mapping[str, jobs.ArgumentValue], repeat: int) -> str:
    """Return 12 hexadecimal digits of what a point changes and of its repeat."""
    text = json.dumps([sorted(changes.items()), repeat])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def name(settings: Mapping[str, jobs.ArgumentValue], repeat: int, identity: str) -> str:
    """Return a point's name: what it varies, the repeat from the second on, its identity."""
    words = [f"{key.rpartition('.')[2]}{_word(value)}" for key, value in sorted(settings.items())]
    words = [values.fitting_name("-".join(words))[:_NAME_CHARACTERS].rstrip("-._")]
    words += [f"r{repeat}"] if repeat > 1 else []
    return "-".join([*filter(None, words), identity[:8]])


def _word(value: jobs.ArgumentValue) -> str:
    if isinstance(value, tuple):
        return "_".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def points_of(stored: Sequence[records.StoredPoint]) -> list[records.Point]:
    """Return stored points with the jobs that they are."""
    shapes_of = {text: specs.from_json(text) for text in {point.shape_spec for point in stored}}
    return [
        records.Point(
            name=point.name,
            identity=point.identity,
            shape=point.shape,
            repeat=point.repeat,
            settings=point.settings,
            changes=point.changes,
            spec=_spec_of(shapes_of[point.shape_spec], point.changes),
        )
        for point in stored
    ]


def _spec_of(shape: jobs.JobSpec, changes: Mapping[str, jobs.ArgumentValue]) -> jobs.JobSpec:
    paths = {key: keys.split(key) for key in changes}
    given = {path[1]: changes[key] for key, path in paths.items() if path[0] == "args"}
    return dataclasses.replace(shape, args=_arguments(shape.args, given))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shape:
    """What points have in common that differ in arguments alone."""

    spec: jobs.JobSpec
    #: the same for shapes that come to the same job
    key: str


class Builder:
    """Makes the points of one sweep; keeps what is wrong with them."""

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
        self._shapes: dict[str, _Shape | None] = {}
        self._seen: dict[tuple[str, str], str] = {}
        found = self._base.data.get("args")
        self._args: dict[str, jobs.ArgumentValue] = {}
        for key, value in found.items() if isinstance(found, Mapping) else ():
            if schema.fits(value, jobs.ArgumentValue):
                self._args[key] = tuple(value) if isinstance(value, list) else value
        self._batch = batch_size.fixed(table, self._args)

    def points(self, settings: Iterable[records.Settings]) -> list[records.Point]:
        """Return the points, each as often as it is repeated; those that cannot be are left out."""
        made = [point for each in settings for point in self._point(each)]
        return [
            dataclasses.replace(
                point,
                name=name(point.settings, repeat, found),
                identity=found,
                repeat=repeat,
            )
            for repeat in range(1, self._table.repeats + 1)
            for point in made
            for found in [identity(point.changes, repeat)]
        ]

    def shapes(self) -> dict[str, records.Shape]:
        """Return the shapes of the points that were made, by key."""
        found: dict[str, records.Shape] = {}
        for shape in filter(None, self._shapes.values()):
            spec = dataclasses.replace(shape.spec, args=self._args)
            totals = sizes.resources_of(spec, self._profile)
            is_known = not totals.points_without_time_limit
            found[shape.key] = records.Shape(
                key=shape.key,
                spec=specs.to_json(spec),
                gpu_hours=totals.gpu_hours if is_known else None,
                node_hours=totals.node_hours if is_known else None,
            )
        return found

    def tell(self, at: key_paths.KeyPath, message: str) -> None:
        """Keep a problem, once."""
        problem = self._document.problem(at, message)
        if problem not in self.problems:
            self.problems.append(problem)

    def _point(self, settings: records.Settings) -> list[records.Point]:
        """Return the point once, or nothing where it cannot be."""
        changes = self._structure(settings)
        wanted = [setting for setting in settings if setting.path[0] == "args"]
        if changes is None:
            return []
        shape = self._shape(changes, wanted)
        if shape is None:
            return []
        wanted = self._with_batch(shape.spec, wanted)
        where = {setting.path[1]: setting.at for setting in wanted}
        given = {setting.path[1]: setting.value for setting in wanted}
        for paths, told in checks.each_argument(("args",), given):
            self.tell(where[str(paths[0][1])], told)
        if given and (shape.spec.launch.command or shape.spec.launch.program):
            told = "cannot be varied: a launch.command or a program after -- takes no arguments"
            self.tell(wanted[0].at, told)
        spec = dataclasses.replace(shape.spec, args=_arguments(self._args, given))
        point = records.Point(
            name="",
            identity="",
            shape=shape.key,
            repeat=1,
            settings={documents.dotted(setting.path): setting.value for setting in settings},
            changes={
                documents.dotted(setting.path): setting.value for setting in [*changes, *wanted]
            },
            spec=spec,
        )
        self._check_batch(point, settings)
        self._check_once(point, settings[-1].at if settings else ("sweep",))
        return [point]

    def _structure(self, settings: records.Settings) -> list[records.Setting] | None:
        """Return what is given a value besides arguments, with GPUs as nodes and GPUs of each."""
        found = [one for one in settings if one.path[0] != "args" and one.path != records.GPUS]
        for setting in settings:
            if setting.path != records.GPUS:
                continue
            shape, told = self._nodes(setting, found)
            for other in found:
                if other.path in (_NODES, _GPUS_PER_NODE, ("resources", "gres")):
                    told = f"{documents.dotted(other.path)} is worked out from gpus: leave it out"
            if shape is None or told:
                self.tell(setting.at, told)
                return None
            pairs = zip((_NODES, _GPUS_PER_NODE), shape, strict=True)
            found += [records.Setting(path=path, value=n, at=setting.at) for path, n in pairs]
        return found

    def _nodes(
        self, setting: records.Setting, others: list[records.Setting]
    ) -> tuple[tuple[int, int] | None, str]:
        assert isinstance(setting.value, int)
        a_node, told = sizes.node_size(
            self._table, self._base, self._partition(others), self._profile
        )
        return sizes.shape(setting.value, a_node) if a_node is not None else (None, told)

    def _partition(self, others: list[records.Setting]) -> str | None:
        for setting in others:
            if setting.path == ("job", "partition"):
                return str(setting.value)
        job = self._base.data.get("job")
        found = job.get("partition") if isinstance(job, Mapping) else None
        return found if isinstance(found, str) else self._profile.partition

    def _shape(
        self, changes: list[records.Setting], wanted: list[records.Setting]
    ) -> _Shape | None:
        """Return the job that these changes make, as a spec would be read; none if it is wrong."""
        pairs = [[documents.dotted(one.path), one.value] for one in changes]
        key = json.dumps(sorted(pairs, key=str))
        if key not in self._shapes:
            self._shapes[key] = self._read(changes, wanted)
        return self._shapes[key]

    def _read(self, changes: list[records.Setting], wanted: list[records.Setting]) -> _Shape | None:
        document = self._base
        upper = documents.Document(origins={(): document.origin(())})
        places = {arguments.flag(setting.path[1]): setting.at for setting in wanted}
        for argument in self._args:
            if (at := places.get(arguments.flag(argument))) is not None:
                self._refuse_given(("args", argument), at)
                document = documents.without(document, ("args", argument))
        for setting in changes:
            self._refuse_given(setting.path, setting.at)
        for setting in [*changes, *wanted]:
            origin = self._document.origin(setting.at)
            upper = documents.merge(upper, documents.leaf(setting.path, setting.value, origin))
        layered = specs.over(document, upper)
        try:
            spec = specs.build(layered, [], self._folder)
        except errors.SpecError as error:
            self._keep(error.problems)
            return None
        try:
            spec = profiles.fill(spec, self._profile)
        except errors.SpecError as error:
            # The profile's word has no line; the key's has.
            self._keep(
                layered.problem(tuple(problem.key.split(".")), problem.message)
                for problem in error.problems
            )
            return None
        self._check_ranks(spec, changes)
        text = specs.to_json(dataclasses.replace(spec, args={}))
        return _Shape(spec=spec, key=hashlib.sha256(text.encode()).hexdigest()[:12])

    def _keep(self, problems: Iterable[errors.Problem]) -> None:
        self.problems += [problem for problem in problems if problem not in self.problems]

    def _refuse_given(self, path: tuple[str, ...], at: key_paths.KeyPath) -> None:
        """Tell of a key that the sweep varies although the command line fixes it."""
        found: object = self._base.data
        for part in path:
            found = found.get(part) if isinstance(found, Mapping) else None
        origin = self._base.origin(path)
        # What was stored has one origin for all: it was looked at when it was read.
        is_given = origin.line is None and origin is not self._base.origin(())
        if found is not None and is_given:
            told = f"is varied by the sweep, and {origin.source} fixes {documents.dotted(path)}"
            self.tell(at, f"{told}: leave one out")

    def _check_ranks(self, spec: jobs.JobSpec, changes: list[records.Setting]) -> None:
        """Tell of a number of ranks that would stay the same whatever the GPUs are."""
        resources, launch = spec.resources, spec.launch
        if launch.command is not None:
            return
        sized = [setting for setting in changes if setting.path in (_NODES, _GPUS_PER_NODE)]
        both = {setting.path for setting in sized} == {_NODES, _GPUS_PER_NODE}
        if both and launch.launcher == "torchrun" and launch.nproc_per_node != "auto":
            told = 'says the ranks of a node, and gpus varies them: write "auto"'
            self.tell(("launch", "nproc_per_node"), told)
        if sized and launch.launcher == "python" and resources.nodes > 1:
            told = f"python starts one process, on the first of {resources.nodes} nodes: use"
            self.tell(sized[0].at, f"{told} the launcher torchrun or srun")
        if launch.launcher != "srun":
            return
        if sized and resources.ntasks is not None:
            self.tell(("resources", "ntasks"), "says the ranks, and the sweep varies them")
        if both and resources.ntasks_per_node is not None:
            told = "says the ranks of a node, and gpus varies them: leave it out"
            self.tell(("resources", "ntasks_per_node"), told)

    def _with_batch(
        self, spec: jobs.JobSpec, wanted: list[records.Setting]
    ) -> list[records.Setting]:
        """Return the arguments with the batch that strong and weak scaling fix."""
        batch = self._batch
        if batch is None:
            return wanted
        if told := batch_size.misfit(self._table, batch, spec):
            self.tell(batch.at, told)
        if told or batch.samples is None:
            return wanted
        others = [one for one in wanted if one.path != batch.path]
        return [*others, batch_size.setting(self._table, batch, spec)]

    def _check_batch(self, point: records.Point, settings: records.Settings) -> None:
        batch, total = self._batch, None
        if batch is not None:
            if key := batch_size.contradiction(self._table, batch, point.spec):
                at = next((one.at for one in settings if one.path == ("args", key)), ("args", key))
                told = "weak scaling fixes the batch of each GPU, and this the global one: leave it"
                cure = f'out, or set sweep.batch_argument = "{key}" if it is of each GPU'
                self.tell(at, f"{told} {cure}")
                return
            total = batch.samples if self._table.kind == "strong" else None
        if told := batch_size.indivisible(point.spec, total):
            self.tell(_place(settings), told)

    def _check_once(self, point: records.Point, at: key_paths.KeyPath) -> None:
        key = point.shape, json.dumps(sorted(point.spec.args.items()))
        words = [f"{name} = {schema.as_toml(value)}" for name, value in point.settings.items()]
        told = ", ".join(words) or "as the spec is"
        if key in self._seen:
            first = self._seen[key]
            self.tell(at, f"the point ({told}) is there twice, the first time as ({first})")
        else:
            self._seen[key] = told


def _place(settings: records.Settings) -> key_paths.KeyPath:
    """Return where a batch that does not come out is told: at the size, else at the batch."""
    for wanted in (records.GPUS, _NODES, _GPUS_PER_NODE):
        for setting in settings:
            if setting.path == wanted:
                return setting.at
    for setting in settings:
        if "batch" in setting.path[-1]:
            return setting.at
    return settings[0].at if settings else ("sweep",)


def _arguments(
    base: Mapping[str, jobs.ArgumentValue], given: Mapping[str, jobs.ArgumentValue]
) -> dict[str, jobs.ArgumentValue]:
    """Return the arguments with those given in place of the base's own, whatever their spelling."""
    flags = {arguments.flag(key) for key in given}
    kept = {key: value for key, value in base.items() if arguments.flag(key) not in flags}
    return {**kept, **given}
