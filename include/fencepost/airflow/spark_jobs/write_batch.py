"""Write a batch: spark-submit write_batch.py --pipeline NAME --start ISO --end ISO --outcome FILE"""

import sys

from fencepost.steps.jobs import main

sys.exit(main("write", sys.argv[1:]))
