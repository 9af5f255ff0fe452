"""Drafts a pipeline from a sample of its topic: types, checks, schedule and the three files. Also finds how a topic has drifted
from what a pipeline declares. Reads Kafka and the registry, and starts no Spark. For commands and the doctor.
"""
