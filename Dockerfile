# The one image of docker-compose.yaml: Airflow's components, the Spark driver, master and workers, Kafka's brokers. They all hold
# the same Python packages and jars, which is what PySpark and the native wheels in the executors need.
FROM python:3.11-slim-bookworm

# make and java are what `make setup` needs.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home fencepost \
    && install --directory --owner fencepost --mode 0750 /var/lib/fencepost /var/lib/fencepost-authority \
       /var/lib/fencepost-broker /var/lib/fencepost-cluster /var/lib/fencepost-lake \
       /var/lib/fencepost-schema-registry /var/lib/fencepost-spark

WORKDIR /opt/fencepost
ENV PATH=/opt/fencepost/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYSPARK_PYTHON=/opt/fencepost/.venv/bin/python \
    FENCEPOST_JARS=/opt/fencepost/jars \
    FENCEPOST_STATE=/var/lib/fencepost

# The same set-up as on a developer's machine, in two steps: requirements.txt and the jars, pinned there, need little of
# the repository, and are not fetched again when something else changes; the archive of classes needs the package, and a
# broker for the moment.
COPY Makefile pyproject.toml requirements.txt ./
COPY include/pyproject.toml include/
COPY include/fencepost/__init__.py include/fencepost/errors.py include/fencepost/jars.py include/fencepost/jars.lock \
     include/fencepost/paths.py include/fencepost/
COPY include/fencepost_stack include/fencepost_stack
RUN make packages \
    && rm -rf ~/.cache
COPY include/fencepost include/fencepost
RUN make setup

COPY . .
# Files have the modes that they have in the checkout, which may be its owner's alone.
RUN find . ! -type l ! -perm -a+r -exec chmod a+rX {} +
USER fencepost
