"""trainers.train with a pause after each epoch, which leaves the processors to other tests.

PACE_SECONDS=0.5 python -m tests.cluster.paced_training ARGUMENTS...
"""

from __future__ import annotations

import os
import time

from trainers import train


class Paced(train.Trainer):
    """A trainer that sleeps before it reports an epoch."""

    def end_epoch(self) -> None:
        time.sleep(float(os.environ["PACE_SECONDS"]))
        super().end_epoch()


if __name__ == "__main__":
    train.Trainer = Paced
    train.main()
