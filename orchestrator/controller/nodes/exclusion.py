"""The nodes that sbatch is to exclude: those of the job, and those of the record of nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orchestrator import jobs, nodes
from orchestrator.controller.nodes import known_nodes, record
from orchestrator.controller.session import clusters, contexts
from orchestrator.rendering import batch_options, directives
from orchestrator.slurm import fields

_OPTION = "--exclude="


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exclusion:
    #: what the job itself excludes
    own: tuple[str, ...] = ()
    #: those of the record of nodes
    added: tuple[nodes.Node, ...] = ()
    #: names that the job excludes and that Slurm does not know
    gone: tuple[str, ...] = ()
    #: Slurm refused the job because only the added nodes fit it
    are_needed: bool = False

    @property
    def option(self) -> str | None:
        """Return the option for sbatch's command line; None: what the script says remains."""
        added = () if self.are_needed else tuple(node.name for node in self.added)
        return _OPTION + ",".join([*self.own, *added]) if self.gone or added else None

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return a sentence for each node that is added or left out."""
        added = (
            f"{node.name} is not excluded: Slurm has no other nodes for this job"
            if self.are_needed
            else f'{node.name} is excluded (nodes.exclude = "auto"): {node.reason}'
            for node in self.added
        )
        return *added, *(f"{host} is not excluded: Slurm has no such node" for host in self.gone)

    def over(self, options: Sequence[str]) -> list[str]:
        """Return options for sbatch's command line with this one in place of theirs."""
        if self.option is None:
            return [*options]
        return [*(word for word in options if not word.startswith(_OPTION)), self.option]


def of(context: contexts.Context, spec: jobs.JobSpec, script: str, cluster: str) -> Exclusion:
    """Return what is excluded in addition, without the nodes that Slurm does not know any more."""
    own = _options(spec, script).get("exclude") or ""
    if "/" in own or "{" in own:
        # A file with names, or a function such as feature{a100}, which Slurm reads.
        return Exclusion()
    hosts = fields.expand_hosts(own)
    needed = requested(spec, script)
    added = tuple(
        node
        for node in record.excluded(context, cluster)
        if node.name not in hosts and node.name not in needed
    )
    gone = _unknown(context, cluster, hosts)
    kept = [host for host in hosts if host not in gone] if gone else hosts and [own]
    return Exclusion(own=tuple(kept), added=added, gone=gone)


def _unknown(context: contexts.Context, cluster: str, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts that Slurm does not know; none if it does not answer."""
    unknown = tuple(hosts)
    for max_age_seconds in (known_nodes.MAX_AGE_SECONDS, known_nodes.NEW_SECONDS):
        # A node may have been added since the names were stored.
        known = known_nodes.of(context, cluster, max_age_seconds) if unknown else None
        unknown = () if known is None else tuple(host for host in hosts if host not in known)
    return unknown


def requested(spec: jobs.JobSpec, script: str = "") -> list[str]:
    """Return the nodes that a job asks for by name; without its script, those of its spec."""
    names = _options(spec, script).get("nodelist") if script else spec.nodelist
    return fields.expand_hosts(names or "")


def expected(context: contexts.Context, spec: jobs.JobSpec, script: str) -> list[str]:
    """Return what `submit` would add to the script, as sentences."""
    facts = clusters.known_facts(context)
    if facts is None:
        return []
    exclusion = of(context, spec, script, facts.cluster)
    if exclusion.option is None:
        return []
    return [f"On sbatch's command line: {exclusion.option}", *exclusion.sentences]


def applied(
    context: contexts.Context, job: jobs.Job, exclusion: Exclusion, options: Sequence[str]
) -> list[str]:
    """Return the options for sbatch's command line with the exclusion, which is reported."""
    for sentence in exclusion.sentences:
        context.reporter.info(sentence)
    event = context.event("exclude", "; ".join(exclusion.sentences), source="rules")
    with context.store.reading() as work:
        before = [each.detail for each in work.events.of_job(job.row) if each.kind == event.kind]
    # A deferred job is tried many times.
    if event.detail != (before[-1] if before else ""):
        with context.store.writing() as work:
            work.events.add(job.row, event)
    return exclusion.over(options)


def _options(spec: jobs.JobSpec, script: str) -> dict[str, str | None]:
    """Return the options of the script and of the command line by their long names."""
    source = spec.launch.batch_file
    if source is None:
        return dict(directives.parse(script))
    options = {option.name: option.value for option in batch_options.read(script, source)}
    return options | {name: str(value) for name, value in spec.sbatch.items()}
