"""``python -m attn_sched.cli``: the command line where the package lies beside the job and is not installed."""

from attn_sched.cli import main

main(prog_name="attn-sched")
