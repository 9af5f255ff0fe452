"""Validate a batch: spark-submit validate_batch.py --pipeline NAME --start ISO --end ISO --outcome FILE"""

import sys

from fencepost.steps.jobs import main

sys.exit(main("validate", sys.argv[1:]))
