"""The specs of a job on 8 GPUs for half an hour, and of a sweep of two such jobs."""

JOB = """\
[job]
name = "demo"
time_limit = "30"
[resources]
nodes = 2
gpus_per_node = 4
[launch]
launcher = "python"
script = "train.py"
"""
SWEEP = f'{JOB}[sweep]\nkind = "grid"\naxes.args.lr = [0.1, 0.01]\n'
