"""Settings of the unit tier."""

import hypothesis

# How long an example takes is the machine's affair: a busy one failed tests that were right.
hypothesis.settings.register_profile(
    "any-machine",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any-machine")
