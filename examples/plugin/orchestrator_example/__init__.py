"""Plugins for orchestrator. Each module is imported only when its plugin is named."""
