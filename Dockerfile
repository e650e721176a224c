# One image for the controller, the webhook and the node plugin:
#
#   docker build -t REGISTRY/ebs-provisioner:0.1.0 .
#
# All Python packages are pinned by constraints.txt. To pin the base by its content too, give it with
# a digest: --build-arg BASE=python:3.11.14-slim-bookworm@sha256:…
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY provisioner ./provisioner
COPY webhook ./webhook
# Into a folder of its own: pip, and what builds our package, stay behind. Not isolated, because pip
# would take any version of the latter.
RUN pip install --no-cache-dir --constraint constraints.txt hatchling \
    && pip install --no-cache-dir --no-build-isolation --prefix=/install \
        --constraint constraints.txt '.[node]'

FROM ${BASE}
# What the node plugin runs. Debian's own versions, with its security fixes of the day.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends e2fsprogs mount util-linux xfsprogs \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /install /usr/local
# Nobody, by number, so that runAsNonRoot can tell. The node plugin's DaemonSet says root.
USER 65532:65532
ENTRYPOINT ["ebs-provisioner"]
