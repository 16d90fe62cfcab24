"""`metrics.patterns = ["tokens"]`: finds `consumed 1024 tokens in 0.5 s`."""

from orchestrator import plugins

TOKENS = plugins.LogPatterns(
    text="""\
[tokens]
description = "consumed N tokens in T s"

[[tokens.line]]
name = "consumed"
regex = 'consumed (?P<tokens>{number}) tokens in (?P<seconds>{number}) s'
metrics = { tokens = "tokens", seconds = "s" }
"""
)
