# `idivm serve` with metrics, PySpark and Java. The same image serves as Spark master and worker, so that
# the driver and the executors run the same Python and the same Spark. Build from the checkout:
#   docker build --file docker/orchestrator.Dockerfile --tag idivm-orchestrator .

FROM eclipse-temurin:21.0.12_8-jre-noble@sha256:d35199d74a3b2dff1bfb435d9adde4ef974e74a7d2a4fcb3079063c55926edb5 AS java

FROM python:3.13.14-slim-trixie@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6 AS build
WORKDIR /src
COPY docker/constraints.txt docker/constraints.txt
RUN python -m pip install --no-cache-dir --constraint docker/constraints.txt hatchling \
    && python -m venv /opt/idivm \
    && /opt/idivm/bin/pip install --no-cache-dir --constraint docker/constraints.txt prometheus-client pyspark
COPY LICENSE README.md pyproject.toml ./
COPY idivm idivm
COPY migrations migrations
COPY pg_extension pg_extension
COPY sql sql
COPY orchestrator orchestrator
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/idivm/bin/pip install --no-cache-dir --constraint docker/constraints.txt /wheels/*.whl

FROM python:3.13.14-slim-trixie@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6
COPY --from=java /opt/java/openjdk /opt/java/openjdk
COPY --from=build /opt/idivm /opt/idivm
ENV JAVA_HOME=/opt/java/openjdk \
    PATH=/opt/idivm/bin:/opt/java/openjdk/bin:/usr/local/bin:/usr/bin:/bin \
    PYSPARK_PYTHON=/opt/idivm/bin/python \
    PYTHONDONTWRITEBYTECODE=1
# Spark asks Java for the vector module, which a Java cut down to size may lack.
RUN useradd --create-home --uid 10001 idivm \
    && java --add-modules jdk.incubator.vector -version \
    && idivm --help
USER 10001:10001
WORKDIR /home/idivm
# The database that IDIVM_DSN names answers, and its catalog fits this program.
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s --retries=3 \
    CMD ["idivm", "list", "--json"]
CMD ["idivm", "serve", "--metrics", "0.0.0.0:9187", "--log-format", "json"]
