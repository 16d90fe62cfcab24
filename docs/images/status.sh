#!/bin/sh
# The jobs in status.svg. On the test cluster, from the checkout:
#
#   lab() { python3 -m tests.cluster "$@"; }
#   lab up && lab as alice sh -c 'cd && sh /srv/orchestrator/docs/images/status.sh'
#   python3 -m tests.picture docs/images/status.svg "orchestrator status" -- \
#       python3 -m tests.cluster as alice orchestrator status
set -eu

submit() { # NAME COMMAND OPTIONS...
    name=$1
    command=$2
    shift 2
    orchestrator submit --name "$name" --command "$command" --parsable "$@"
}

submit preprocess true --time-limit 10
submit resnet50-lr 'sleep 300' --time-limit 10 --array-size 12 --max-running 3 --gpus-per-node 2
first=$(submit vit-base 'sleep 300' --time-limit 4:00:00 --nodes 2 --gpus-per-node 2)
submit vit-large 'sleep 300' --time-limit 12:00:00 --nodes 4 --gpus-per-node 4
submit evaluate 'sleep 10' --time-limit 10 --dependency "afterok:$first"
submit har-cnn hostname --time-limit 2:00:00 --partition short
submit tokenizer 'exit 3' --time-limit 10
