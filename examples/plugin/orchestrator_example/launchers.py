"""`launch.launcher = "timed"`: runs the program once, and prints how long it ran."""

from orchestrator import plugins

TIMED = plugins.Launcher(
    template="""\
# ---- Launch: timed
orchestrator_task=$(
  cat <<'{{ delimiter | comment }}'
{% include "launch/task.sh.j2" %}
{% if spec.launch.command %}
time {
{{ spec.launch.command }}
}
{% else %}
{% include "launch/found.sh.j2" %}
time "$@"
{% endif %}
{{ delimiter | comment }}
)
{% set placement = "here" %}
{% include "launch/start.sh.j2" %}
""",
    like="python",
    needs_slurm=False,
)
