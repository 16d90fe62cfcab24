# What a host has, for `orchestrator doctor --host` and `setup --host`: lines "probe KEY VALUE".
#
# POSIX sh; ssh starts `sh`, whatever the login shell is, and this is its stdin. The caller sets
# orchestrator_agent to the words that start the agent, and orchestrator_installer to the program
# that installs orchestrator, with orchestrator_python to run it ("": the best that is found) and
# its input in orchestrator_input.
# shellcheck disable=SC2154 # The caller sets them.
LC_ALL=C
export LC_ALL
printf '\nprobe begin\n'

orchestrator_candidates() {
    for name in python3.14 python3.13 python3.12 python3.11 python3 python; do
        command -v "$name"
    done
    for path in "$HOME"/.local/bin/python3.1[1-9] "$HOME"/.local/share/uv/python/*/bin/python3 \
        "$HOME"/mini*/bin/python3 "$HOME"/anaconda3/bin/python3 \
        /usr/bin/python3.1[1-9] /usr/local/bin/python3.1[1-9]; do
        [ ! -x "$path" ] || echo "$path"
    done
}

# Prints "probe python VERSION WORD PATH"; also Python 2 understands it.
orchestrator_check='
import sys
word = "venv"
try:
    import ensurepip, venv
except ImportError:
    word = "no-venv"
if sys.version_info < (3, 11):
    word = "old"
version = ".".join(map(str, sys.version_info[:3]))
sys.stdout.write("probe python %s %s %s\n" % (version, word, sys.executable))
'
orchestrator_pythons() {
    orchestrator_candidates | while read -r path; do
        "$path" -c "$orchestrator_check" </dev/null 2>/dev/null
    done
}

# As sshd starts it.
orchestrator_try_agent() {
    echo "probe agent"
    "${SHELL:-/bin/sh}" -c "$orchestrator_agent" </dev/null
    printf '\nprobe agent-exit %s\n' "$?"
}

echo "probe host $(uname -n)"
echo "probe machine $(uname -s) $(uname -m)"
pythons=$(orchestrator_pythons)
printf '%s\n' "$pythons"
if [ -n "$orchestrator_installer" ]; then
    if [ -z "$orchestrator_python" ]; then
        orchestrator_python=$(printf '%s\n' "$pythons" | sed -n 's/^probe python [^ ]* venv //p' |
            head -n 1)
    fi
    if [ -n "$orchestrator_python" ]; then
        printf '%s' "$orchestrator_input" | "$orchestrator_python" -I -c "$orchestrator_installer"
        echo "probe installer $?"
    fi
else
    # A module or /etc/profile may add them only to PATH of a login shell.
    # shellcheck disable=SC2016 # The two shells expand it.
    look='for name in sbatch squeue sacct scontrol scancel srun; do
        command -v $name >/dev/null && echo "probe $key $name"
    done'
    key='command' sh -c "$look"
    key='login-command' bash -lc "$look" </dev/null 2>/dev/null
fi
orchestrator_try_agent
echo "probe clock $(date +%s)"
echo "probe end"
