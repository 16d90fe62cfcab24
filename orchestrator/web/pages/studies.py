"""The scaling report of a sweep, also compared with a baseline."""

from __future__ import annotations

from starlette import requests, responses

from orchestrator import errors, reports
from orchestrator.controller.reports import baselines, studies
from orchestrator.controller.sweeps import queries
from orchestrator.reports import comparison, documents, figures, tables
from orchestrator.web import plots, site


def show(request: requests.Request) -> responses.Response:
    web = site.of(request)
    reference = f"@{request.path_params['row']}"
    sweep = queries.find(web.context, reference)
    with web.context.store.reading() as work:
        mark = work.changes.of_results()
        names = list(dict.fromkeys(each.name for each in work.baselines.newest()))
        schedule = work.schedules.of_sweep(sweep.row)

    def report() -> tuple[reports.MeasurementSet, reports.Report]:
        # NotFoundError if nothing is measured yet.
        study = studies.of_sweep(web.context, reference)
        built = reports.build_report(
            study.title,
            study.measurements,
            unit=study.unit,
            scaling_kind=study.scaling,
            left_out=study.left_out,
        )
        return study, built

    study, built = web.computed.of(("study", sweep.row, mark), report)
    against, compared, problem = request.query_params.get("against", ""), None, ""
    if against:
        try:
            compared = baselines.compare(study, baselines.find(web.context, against))
        except errors.OrchestratorError as error:
            problem = f"{error}."
    return site.page(
        "study.html.j2",
        sweep=sweep,
        rows=tables.texts(built),
        plots=[plots.draw(figure) for figure in figures.figures(built)],
        size=plots,
        sections=documents.sentences(built, reports.Targets()),
        schedule=schedule,
        baselines=names,
        against=against,
        compared=compared,
        worse=comparison.worse(compared, study.unit) if compared else [],
        problem=problem,
    )
