# The router in an image of its own: non-root, nothing to write but /tmp, everything from the lock files with hashes.
#
#   make image                                   or: docker build --network host --tag kafka-delay-router .
#   docker run --read-only --tmpfs /tmp --volume "$PWD/delay-router.toml:/etc/delay-router/delay-router.toml:ro" ...
#
# BASE is any image with Python 3.11 or newer as python3, with venv. A tag names another image tomorrow: a release is built
# by digest, which `make release-image BASE=NAME@sha256:...` insists on. LOCK=requirements-extras.lock is the image with the
# extras `tracing` and `msk` (make image EXTRAS=1). Wheels that lie in
# build/wheels are taken from there; PIP_NO_INDEX=1 takes them from nowhere else.
#
# The kernel (sidecar/kernel) is compiled in the first stage, which installs a C compiler with apt-get where BASE has none; the
# image itself has no compiler. For another base name one with the same Python and a compiler as BUILD_BASE, or do without:
# KERNEL=off, and the router does the same in Python.
ARG BASE=python:3.13-slim-bookworm
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
ARG PIP_NO_INDEX=
ARG LOCK=requirements.lock
ARG KERNEL=on
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
# Headers of Python come with a Python of its own, and else from the package of the system's.
RUN headers() { python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null; } \
 && if [ "$KERNEL" != off ] && ! { command -v gcc && headers; } >/dev/null; then \
      apt-get update -qq \
      && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends \
           gcc libc6-dev $(headers || echo python3-dev) >/dev/null; \
    fi
RUN python3 -m venv tools && python3 -m venv --without-pip /opt/delay-router
# The glob lets the folder be missing.
COPY requirements.lock requirements-extras.lock requirements-image.lock build/wheel[s] wheels/
RUN tools/bin/python -m pip install --quiet --require-hashes --only-binary :all: --find-links wheels \
      --requirement wheels/requirements-image.lock \
 && tools/bin/python -m pip --python /opt/delay-router/bin/python install --quiet --require-hashes \
      --only-binary :all: --find-links wheels --requirement wheels/${LOCK}
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY index index
COPY snapshots snapshots
COPY sidecar sidecar
COPY spark_backfill spark_backfill
# What was to be compiled and is not is an error, since nothing else would tell until the image is slow.
ARG COMMIT=
RUN DELAY_ROUTER_KERNEL=$KERNEL DELAY_ROUTER_COMMIT=$COMMIT tools/bin/python -m hatchling build --target wheel --directory dist \
 && tools/bin/python -m pip --python /opt/delay-router/bin/python install --quiet --no-deps --no-index dist/*.whl \
 && if [ "$KERNEL" != off ]; then \
      found=$(/opt/delay-router/bin/python -m sidecar.kernel) && echo "$found" && [ "$found" = "kernel: native" ]; \
    fi
COPY helm/image helm/image
RUN tools/bin/cyclonedx-py environment /opt/delay-router/bin/python --output-reproducible \
      --output-format JSON --output-file sbom.cdx.json \
 && /opt/delay-router/bin/python -m helm.image.sbom sbom.cdx.json \
      "$(/opt/delay-router/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

FROM ${BASE}
LABEL org.opencontainers.image.title="kafka-delay-router" \
      org.opencontainers.image.description="Delayed delivery for Apache Kafka" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/delay-router /opt/delay-router
COPY --from=build /build/sbom.cdx.json /build/LICENSE /usr/share/doc/kafka-delay-router/
COPY --from=build /build/helm/image/healthcheck.py /opt/delay-router/healthcheck.py
ENV PATH=/opt/delay-router/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
# delay-router.toml is looked for here.
WORKDIR /etc/delay-router
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=4 \
  CMD ["python3", "/opt/delay-router/healthcheck.py"]
ENTRYPOINT ["delay-router"]
CMD ["run"]
