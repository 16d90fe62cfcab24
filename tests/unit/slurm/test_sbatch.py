"""Classification of sbatch's output of three releases."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.slurm import sbatch
from orchestrator.slurm.sbatch import OutcomeKind

NOT_SENT = {
    "badopt",
    "badtime",
    "baddirective",
    "empty",
    "noshebang",
    "dos",
    "nul",
    "unmatched",
    "nofile",
    "badgres",
    "badbegin",
    "excl",
    "mailtype",
    "signal",
    "export",
    "cluster",
    "uid",
    "minmem",
}
REJECTED = {
    "badgres2",
    "badpart",
    "badaccount",
    "badqos",
    "toomanygpus",
    "toomem",
    "feature",
    "array",
    "arraysyntax",
    "nodelist",
    "reservation",
    "license",
    "toolong",
    "dep",
    "wall",
}
REJECTED_RETRY = {"inactive", "tiny4", "arraytiny"}
ACCEPTED = {"tiny1", "tiny2", "tiny3", "timelimit", "wckey", "chdir", "clusterslab"}


def test_command():
    assert sbatch.command("/r/s.sh", "a.t", "/r/%j.out", "t", ["--hold"]) == [
        "sbatch",
        "--parsable",
        "--job-name=a.t",
        "--output=/r/%j.out",
        "--comment=t",
        "--hold",
        "/r/s.sh",
    ]
    assert sbatch.command("s.sh", "a.t") == [
        "sbatch",
        "--parsable",
        "--job-name=a.t",
        "s.sh",
    ]


def test_refusals(recorded):
    kinds = {
        name: sbatch.classify(answer).kind
        for name, answer in recorded.answers("refusals.txt").items()
        if answer.argv[0] == "sbatch" and "--test-only" not in answer.argv
    }
    expected = {
        **dict.fromkeys(NOT_SENT, OutcomeKind.NOT_SENT),
        **dict.fromkeys(REJECTED, OutcomeKind.REJECTED),
        **dict.fromkeys(REJECTED_RETRY, OutcomeKind.REJECTED_RETRY),
        **dict.fromkeys(ACCEPTED, OutcomeKind.ACCEPTED),
    }
    assert {name: kinds[name] for name in expected} == expected
    for name in ("dep2", "nodes", "conflict", "cpus", "cpuspertask"):
        # Accepted by some releases, refused for certain by others; never in doubt.
        assert kinds[name] in (OutcomeKind.ACCEPTED, OutcomeKind.REJECTED, OutcomeKind.NOT_SENT)
    assert OutcomeKind.AMBIGUOUS not in kinds.values()


def test_a_job_id_with_a_cluster(recorded):
    outcome = sbatch.classify(recorded.answers("refusals.txt")["clusterslab"])
    assert outcome.job_id is not None
    assert outcome.job_id.isdigit()


def test_outages(make_answer):
    def kind(text, rc=1, stdout=""):
        answer = make_answer(["sbatch"], rc, stdout, stderr=text)
        return sbatch.classify(answer).kind

    failed = "sbatch: error: Batch job submission failed: "
    hung = failed + "Socket timed out on send/recv operation\n"
    assert kind(hung) is OutcomeKind.AMBIGUOUS
    away = failed + "Unable to contact slurm controller (connect failure)\n"
    assert kind(away) is OutcomeKind.NOT_SENT_RETRY
    assert kind(away.replace("connect", "send")) is OutcomeKind.AMBIGUOUS
    munge = 'sbatch: error: Munge encode failed: Failed to connect to "/run/munge/munge.socket.2"\n'
    refused = failed + "Protocol authentication error\n"
    assert kind(munge + refused) is OutcomeKind.NOT_SENT_RETRY
    # Without munge's message, possibly the reply could not be verified.
    assert kind(refused) is OutcomeKind.AMBIGUOUS
    full = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
    busy = full + failed + "Resource temporarily unavailable\n"
    assert kind(busy) is OutcomeKind.REJECTED_RETRY
    # The last word counts: the later try may have got through.
    assert kind(full + hung) is OutcomeKind.AMBIGUOUS
    assert kind(failed + "Something new\n") is OutcomeKind.AMBIGUOUS
    assert kind("") is OutcomeKind.AMBIGUOUS
    assert kind("", rc=-9) is OutcomeKind.AMBIGUOUS
    # A plugin's grumbling decides nothing.
    noise = "sbatch: error: Unable to open file /etc/slurm/banner\n"
    assert kind(noise + hung) is OutcomeKind.AMBIGUOUS
    assert kind(noise + failed + "Something new\n") is OutcomeKind.AMBIGUOUS


@pytest.mark.parametrize(
    ("stdout", "job_id"),
    [
        ("123\n", "123"),
        ("Welcome! 45 CPUs are free.\n\n123;lab\n\n", "123"),
        ("123\nSubmitted: thank you\n", None),
        ("Submitted batch job 123\n", None),
        ("123 \n", "123"),
        ("", None),
        ("12345678901\n", None),
        ("\u0661\u0662\n", None),
    ],
)
def test_job_id(make_answer, stdout, job_id):
    outcome = sbatch.classify(make_answer(["sbatch"], 0, stdout))
    assert outcome.job_id == job_id
    assert outcome.kind is (OutcomeKind.ACCEPTED if job_id else OutcomeKind.AMBIGUOUS)


def test_sentences(make_answer):
    def sentence(stderr="", rc=1, **overrides):
        return sbatch.classify(make_answer(["sbatch"], rc, stderr=stderr, **overrides)).sentence

    failed = "sbatch: error: Batch job submission failed: "
    assert sentence(
        "sbatch: error: invalid partition specified: nope\n"
        f"{failed}Invalid partition name specified\n"
    ) == (
        "Slurm refused the job: invalid partition specified: nope; Batch job submission failed: "
        "Invalid partition name specified. Correct it and submit again."
    )
    assert sentence(
        f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{failed}Job violates accounting/QOS policy "
        "(job submit limit, user's size and/or time limits)\n"
    ) == (
        "Slurm refused the job: QOSMaxSubmitJobPerUserLimit; Batch job submission failed: Job "
        "violates accounting/QOS policy (job submit limit, user's size and/or time limits). You "
        "have reached your submit limit: submit again when some of your jobs have ended."
    )
    assert sentence(timed_out=True, rc=-9, seconds=180.2) == (
        "sbatch timed out after 180 s. Slurm may or may not have the job."
    )
    assert sentence(rc=0, stdout="\x1b[31mhello\x07\n") == (
        "sbatch printed no job ID: [31mhello. Slurm may or may not have the job."
    )


def test_only(recorded):
    result = recorded.answers("refusals.txt")
    estimate = sbatch.parse_test_only(result["testonly"].stderr)
    assert estimate is not None
    assert re.fullmatch(
        r"Slurm would start the job at [-0-9T:+]+ on n\[1-2\] in partition gpu", estimate
    )
    assert sbatch.parse_test_only(result["testonlybad"].stderr) is None


@given(st.integers(-64, 255), st.text(), st.text())
def test_garbage_is_ambiguous(make_answer, rc, stdout, stderr):
    # hypothesis also draws texts from our sources; each that sbatch is known by has two words.
    assume(not re.search("[A-Za-z] [A-Za-z]", stderr))
    outcome = sbatch.classify(make_answer(["sbatch"], rc, stdout, stderr))
    assert outcome.kind is OutcomeKind.AMBIGUOUS or (outcome.job_id or "").isdigit()
