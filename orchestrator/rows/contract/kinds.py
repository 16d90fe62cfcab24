"""The kinds of JSON output and the type of their items."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.rows.contract import jobs, results, service, sweeps

#: kind of an envelope -> a TypedDict
KINDS: Mapping[str, type] = {
    "jobs": jobs.JobRow,
    "host_jobs": jobs.HostJobRow,
    "job": jobs.JobDetails,
    "array": jobs.ArrayRow,
    "environment": jobs.EnvironmentRow,
    "explanation": jobs.ExplanationRow,
    "log_lines": jobs.LogLineRow,
    "metrics": results.MetricRow,
    "metric_statistics": results.StatisticRow,
    "metric_comparison": results.MetricComparisonRow,
    "exported": results.ExportedRow,
    "reparsed": results.ReparsedRow,
    "matches": results.MatchRow,
    "baselines": results.BaselineRow,
    "baseline_runs": results.MeasurementRow,
    "comparison": results.ComparisonRow,
    "report": results.ReportRow,
    "differences": results.DifferenceRow,
    "sweeps": sweeps.SweepRow,
    "sweep_states": sweeps.StateRow,
    "sweep_points": sweeps.PointRow,
    "sweep_results": sweeps.ResultRow,
    "submissions": sweeps.SubmissionRow,
    "graphs": sweeps.GraphRow,
    "graph_nodes": sweeps.NodeRow,
    "nodes": service.NodeRow,
    "images": service.ImageRow,
    "usage": service.UsageRow,
    "disk_usage": service.DiskUseRow,
    "pruned": service.PrunedRow,
    "schedules": service.ScheduleRow,
    "schedule": service.ScheduleDetails,
    "firings": service.TriggerRow,
    "planned_times": service.PlannedTimeRow,
    "notices": service.NoticeRow,
    "controllers": service.ControllerRow,
    "patterns": service.PatternRow,
    "config": service.ConfigRow,
    "fabrics": service.FabricRow,
    "fabric_lines": service.FabricLineRow,
    "checks": service.CheckRow,
    "trusted": service.TrustedRow,
    "problems": service.ProblemRow,
    "backups": service.BackupRow,
    "plans": service.PlanRow,
    "schemas": service.SchemaRow,
}
