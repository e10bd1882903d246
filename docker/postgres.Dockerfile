# PostgreSQL 18 with the extension. Build from the checkout:
#   docker build --file docker/postgres.Dockerfile --tag idivm-postgres .

FROM python:3.13.14-slim-trixie@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6 AS extension
WORKDIR /src
COPY migrations migrations
COPY pg_extension pg_extension
RUN python pg_extension/build.py /extension

FROM postgres:18.6-trixie@sha256:86c951e05bf56c93d95d397747fb8820ac76cc3bedb78f43abd83eedbe3666ae
COPY --from=extension /extension/ /usr/share/postgresql/18/extension/
COPY docker/create-extension.sql /docker-entrypoint-initdb.d/10-idivm.sql
# postgres
USER 999:999
# Over TCP, which the server that only initialises the data does not serve.
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=5 \
    CMD ["pg_isready", "--quiet", "--host", "127.0.0.1"]
