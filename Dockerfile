# An image with levin, for the manifests that `levin run --print-manifest` writes: the `levin` command, the
# library with its CMake package, LibTorch, and examples/01_classifier as `train`.
#
#   docker build -t registry/train:1 .
#
# A program of your own is built on the stage `build` (cmake -DCMAKE_PREFIX_PATH=/opt/levin), copied into the last
# stage, and named in the manifest. For GPUs give --build-arg LIBTORCH=cuda.
FROM debian:12-slim AS build
ARG LIBTORCH=cpu
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /levin
COPY . .
RUN LEVIN_TORCH_BUILD=$LIBTORCH make install PREFIX=/opt/levin \
    && cp build/bin/01_classifier /opt/levin/bin/train

# The data are those of `train`. LibTorch stands where it was built against: that is where the library looks for it.
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends dataset-fashion-mnist libgomp1 libjpeg62-turbo libpng16-16 zlib1g \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /levin/.deps/libtorch /levin/.deps/libtorch
COPY --from=build /opt/levin /opt/levin
ENV PATH=/opt/levin/bin:$PATH LD_LIBRARY_PATH=/opt/levin/lib
WORKDIR /work
CMD ["levin", "env"]
