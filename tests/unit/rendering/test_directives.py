"""#SBATCH lines: sbatch reads the values of the spec."""

from __future__ import annotations

import re

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator import errors, jobs
from orchestrator.config import profiles
from orchestrator.rendering import directives
from orchestrator.specs import ranks

# Output of `sbatch -vvvv --test-only` of 24.11.5 and 26.05.5 for these lines ("Found in script,
# argument ..."); 22.05.8 differs in the fourth alone: there an escaped space outside of quotes ends
# an argument. We never write one.
LINES = r"""#!/bin/bash
# c
#SBATCH --comment='a b\c "d" #e' --x
#SBATCH --comment='a\'b'
#SBATCH --comment='a'"'"'b \\ c'
#SBATCH --comment=a\ b#c
#SBATCH --comment=a'#'b\#c%$(x);y é
#SBATCH --comment=''

#SBATCH --comment=after-blank
true
#SBATCH --comment=late
"""
ARGUMENTS = [
    ("comment", 'a bc "d" #e'),
    ("x", None),
    ("comment", "a'b"),
    ("comment", "a'b \\ c"),
    ("comment", "a b"),
    ("comment", "a#b#c%$(x);y"),
    ("é", None),
    ("comment", ""),
    ("comment", "after-blank"),
]


def test_parse_reads_what_sbatch_reads() -> None:
    assert directives.parse(LINES) == ARGUMENTS


def test_parse_refuses_an_open_quote() -> None:
    with pytest.raises(errors.TemplateError, match=r"unmatched ' in #SBATCH --comment='a"):
        directives.parse("#!/bin/bash\n#SBATCH --comment='a\n")


values = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")) | st.sampled_from("'\"\\ #;$`=-")
)


@hypothesis.given(st.lists(st.tuples(st.from_regex(r"[a-z][a-z-]*", fullmatch=True), values)))
def test_quoted_text_is_read_back(options: list[directives.Option]) -> None:
    script = "#!/bin/bash\n" + "".join(f"#SBATCH {directives.quote(o)}\n" for o in options)
    assert directives.parse(script) == options


@pytest.mark.parametrize("character", ["\n", "\r", "\0", "\t", "\x1b", "\x7f", "\x85", "\u2028"])
def test_a_control_character_is_an_error(character: str) -> None:
    with pytest.raises(errors.TemplateError, match=r"^control character .* in .*: remove it$"):
        directives.quote(("comment", f"a{character}b"))


@pytest.mark.parametrize(
    ("gres_style", "resources", "expected"),
    [
        ("gpus_per_node", {"gpus_per_node": 4}, [("gpus-per-node", "4")]),
        ("gpus_per_node", {"gpus_per_node": 4, "gpu_type": "a100"}, [("gpus-per-node", "a100:4")]),
        ("gres", {"gpus_per_node": 4}, [("gres", "gpu:4")]),
        ("gres", {"gpus_per_node": 4, "gpu_type": "a100"}, [("gres", "gpu:a100:4")]),
        ("gres", {"gres": "gpu:2,nvme:1"}, [("gres", "gpu:2,nvme:1")]),
    ],
)
def test_gpus_are_asked_for_in_the_site_s_way(
    gres_style: str, resources: dict[str, object], expected: list[directives.Option]
) -> None:
    spec = jobs.JobSpec(name="a", resources=jobs.Resources(**resources))  # type: ignore[arg-type]
    profile = profiles.Profile(gres_style=gres_style)  # type: ignore[arg-type]
    result = [o for o in directives.intended(spec, profile) if re.search("gpu|gres", o[0])]
    assert result == expected


@pytest.mark.parametrize(
    ("launcher", "resources", "expected"),
    [
        ("torchrun", {"gpus_per_node": 4}, 1),
        ("torchrun", {"ntasks_per_node": 2}, 2),
        ("srun", {"gpus_per_node": 4}, 4),
        ("srun", {"gres": "gpu:a100:3,nvme:1"}, 3),
        ("srun", {"gres": "nvme:1"}, 1),
        ("srun", {"gpus_per_node": 4, "ntasks_per_node": 8}, 8),
        ("srun", {"ntasks": 6}, None),
        ("python", {"gpus_per_node": 4}, 1),
    ],
)
def test_tasks_per_node(launcher: str, resources: dict[str, object], expected: int | None) -> None:
    spec = jobs.JobSpec(
        name="a",
        resources=jobs.Resources(**resources),  # type: ignore[arg-type]
        launch=jobs.Launch(launcher=launcher, script="a.py"),  # type: ignore[arg-type]
    )
    assert ranks.tasks_per_node(spec) == expected
