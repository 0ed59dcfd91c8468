# The project and all that it needs, for a machine with NVIDIA GPUs or without:
#   docker build -t stockpot .                         # with CUDA, which PyTorch brings along
#   docker build --build-arg DEVICE=cpu -t stockpot .  # without: 2.3 GB of packages
#   docker run --rm --gpus all --shm-size 8g stockpot  # what this machine can do: stockpot selfcheck
FROM python:3.11.14-slim-bookworm AS build
ARG DEVICE=cuda
WORKDIR /source
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY model model
COPY stockpot stockpot
COPY tuner tuner
COPY search_spaces search_spaces
COPY studies studies
# PyTorch's own index has the same release without CUDA, as 2.13.0+cpu: for pip the newer of the two.
RUN python -m venv /opt/stockpot \
 && case "$DEVICE" in \
      cpu) index="--extra-index-url=https://download.pytorch.org/whl/cpu" ;; \
      cuda) index="" ;; \
      *) echo "DEVICE is cuda or cpu, not $DEVICE" >&2; exit 1 ;; \
    esac \
 && /opt/stockpot/bin/pip install --no-cache-dir --disable-pip-version-check $index \
      --constraint constraints.txt '.[local,cluster]' \
 && /opt/stockpot/bin/pip uninstall --yes pip

FROM python:3.11.14-slim-bookworm
ARG DEVICE=cuda
# wget is what KubeRay asks Ray's health with; a C compiler is what torch.compile needs for a GPU.
# Debian keeps no older versions of them to pin.
# hadolint ignore=DL3008
RUN if [ "$DEVICE" = cuda ]; then compiler="gcc libc6-dev"; else compiler=""; fi \
 && apt-get update \
 && apt-get install --yes --no-install-recommends wget $compiler \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 stockpot
COPY --from=build /opt/stockpot /opt/stockpot
# The last two are read by NVIDIA's container runtime, which lends the driver.
ENV PATH=/opt/stockpot/bin:$PATH \
    RAY_USAGE_STATS_ENABLED=0 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000
WORKDIR /home/stockpot
CMD ["stockpot", "selfcheck"]
