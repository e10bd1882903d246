# PostgreSQL 18 with the extension, capture in C among it. Build from the checkout:
#   docker build --file docker/postgres.Dockerfile --tag idivm-postgres .

FROM postgres:18.6-trixie@sha256:86c951e05bf56c93d95d397747fb8820ac76cc3bedb78f43abd83eedbe3666ae AS extension
# The headers must be of the server's own version; the compiler is whatever its Debian has.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        gcc libc6-dev make "postgresql-server-dev-18=$PG_VERSION" python3 \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY migrations migrations
COPY sql/functions sql/functions
COPY pg_extension pg_extension
RUN make -C pg_extension install PG_CONFIG=/usr/lib/postgresql/18/bin/pg_config DESTDIR=/extension

FROM postgres:18.6-trixie@sha256:86c951e05bf56c93d95d397747fb8820ac76cc3bedb78f43abd83eedbe3666ae
COPY --from=extension /extension/ /
COPY docker/create-extension.sql /docker-entrypoint-initdb.d/10-idivm.sql
# postgres
USER 999:999
# Over TCP, which the server that only initialises the data does not serve.
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=5 \
    CMD ["pg_isready", "--quiet", "--host", "127.0.0.1"]
