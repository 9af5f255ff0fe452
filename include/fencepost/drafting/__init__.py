"""Drafts a pipeline from a sample of its topic: types, checks, schedule and the three files. The package also finds how
a topic has drifted from what a pipeline declares. It reads Kafka and the registry, and starts no Spark. Commands and
the doctor use it.
"""
