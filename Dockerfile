# The images of the many-machine form: `api` (also migrate and reconciler), `worker` (builder and CPU worker), `gpu-worker`.
ARG PYTHON=3.13
# Such as @sha256:...: docs/operations.md, "Images by digest".
ARG PYTHON_DIGEST=

FROM python:${PYTHON}-slim-bookworm${PYTHON_DIGEST} AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY compiler compiler
COPY migrations migrations
COPY service service
COPY tilewright tilewright
COPY worker worker
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim-bookworm${PYTHON_DIGEST} AS api
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements-server.txt /requirements/
RUN pip install --require-hashes -r /requirements/requirements-server.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-deps --no-index /wheels/*.whl
# A volume mounted on one of these folders for the first time takes over its owner.
RUN useradd --uid 10001 --create-home tilewright && install -d -o tilewright -g tilewright -m 700 /data /blobs /scratch
USER tilewright
WORKDIR /home/tilewright
EXPOSE 8750
CMD ["python", "-P", "-m", "service"]

FROM api AS worker
USER root
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
USER tilewright
CMD ["python", "-P", "-m", "worker"]

# The driver's libraries come from the NVIDIA runtime, all others from wheels.
FROM worker AS gpu-worker
USER root
COPY requirements-cuda.txt /requirements/
RUN pip install --require-hashes -r /requirements/requirements-cuda.txt
USER tilewright
