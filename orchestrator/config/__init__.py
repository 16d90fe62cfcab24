"""The configuration: settings and cluster profiles from files, variables and the command line."""

from __future__ import annotations

from orchestrator.config import (
    channels,
    database_urls,
    file_schema,
    loading,
    profiles,
    projects,
)

Agents = file_schema.Agents
Channel = channels.Channel
Configuration = loading.Configuration
Host = file_schema.Host
Nodes = file_schema.Nodes
Partition = profiles.Partition
Profile = profiles.Profile
Project = projects.Project
ProjectRefusedError = projects.RefusedError
has_password = database_urls.has_password
load = loading.load
refuse_changed = projects.refuse_changed
shared_folders = loading.shared_folders
with_profile = profiles.fill
without_password = database_urls.without_password
