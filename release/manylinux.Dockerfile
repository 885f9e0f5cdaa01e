# Builds wheels that run wherever PyTorch's own wheels run. AlmaLinux 8 has glibc 2.28. Its compiler takes from
# libstdc++.so only the symbols that GCC 8 had, and links newer symbols statically. pip takes PyTorch from the default
# index: on x86_64 these are builds with CUDA, and release.yml tries the wheels with CPU builds.
#
#   docker build --file release/manylinux.Dockerfile --output dist .
#   docker build --file release/manylinux.Dockerfile --build-arg PLATFORM=aarch64 --output dist .   # on an ARM machine
ARG PLATFORM=x86_64
FROM quay.io/pypa/manylinux_2_28_${PLATFORM} AS build
# The time that the files carry: git log -1 --format=%ct
ARG SOURCE_DATE_EPOCH=0
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH}
WORKDIR /src
COPY . .
RUN make wheels PYTHON=/opt/python/cp312-cp312/bin/python

FROM scratch
COPY --from=build /src/dist/ /
