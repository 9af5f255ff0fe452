"""Run a step of a batch: spark-submit run_step.py write|validate|advance --folder PATH --start ISO --end ISO --outcome FILE"""

import sys

from fencepost.steps.jobs import main

sys.exit(main(sys.argv[1:]))
