# endtask with the file formats, search and ONNX.
#
#   docker build -t endtask .                                                     # CPU
#   docker build -t endtask:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .
#   docker run --rm -v "$PWD":/data endtask run --task labels.csv --corpus 'notes/*.txt' --budget 10min
#   docker run --rm --gpus all -v "$PWD":/data endtask:cuda run --task labels.csv --preset gpu
#
# Add `--user "$(id -u):$(id -g)"` to own the files that a run writes. Nothing is downloaded at run time.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
# The CPU index has PyTorch without CUDA: 200 MB instead of several GB. CUDA libraries come with the wheels of the other.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=formats,search,onnx
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
# --prefix keeps the image free of pip's caches and of the source.
RUN python -m pip install --no-cache-dir --prefix /installed \
    --extra-index-url "${TORCH_INDEX}" -c constraints.txt ".[${EXTRAS}]"

FROM python:${PYTHON}-slim
# Compiled kernels and downloads are cached in a folder that any user may write to.
ENV XDG_CACHE_HOME=/tmp/cache HF_HUB_DISABLE_TELEMETRY=1 HOME=/tmp
COPY --from=build /installed /usr/local
RUN useradd --create-home --uid 1000 endtask
USER 1000
WORKDIR /data
ENTRYPOINT ["endtask"]
CMD ["--help"]
