"""`orchestrator top`: the list of jobs and one job's details, full screen in a terminal.

Only app.py, screens.py and widgets.py know textual.
"""
