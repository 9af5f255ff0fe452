"""Copy a staged batch and publish it: spark-submit advance_batch.py --pipeline NAME --start ISO --end ISO --outcome FILE"""

import sys

from fencepost.steps.jobs import main

sys.exit(main("advance", sys.argv[1:]))
