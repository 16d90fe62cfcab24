"""orchestrator completion."""

from __future__ import annotations

import os

import click
from click import shell_completion

from orchestrator import errors

VARIABLE = "_ORCHESTRATOR_COMPLETE"


@click.command(short_help="Print what makes the shell complete commands and job IDs.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
@click.pass_context
def command(ctx: click.Context, shell: str | None) -> None:
    """Print what makes the shell complete commands, options and job IDs with their states.

    Put one of the lines below into the file that your shell reads first.

    \b
    Examples:
      eval "$(orchestrator completion bash)"        # ~/.bashrc, bash 4.4 or newer
      eval "$(orchestrator completion zsh)"         # ~/.zshrc, behind compinit
      orchestrator completion fish | source         # ~/.config/fish/config.fish
    """
    name = shell or os.path.basename(os.environ.get("SHELL", ""))
    found = shell_completion.get_completion_class(name)
    if found is None or name not in ("bash", "zsh", "fish"):
        raise errors.OrchestratorError(
            f"$SHELL is {name or 'not set'}, which is not known here; name bash, zsh or fish"
        )
    root = ctx.find_root()
    click.echo(found(root.command, {}, "orchestrator", VARIABLE).source())
