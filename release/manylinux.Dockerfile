# Portable wheels, as PyTorch's own: AlmaLinux 8 has glibc 2.28, and its compiler takes from libstdc++.so only the symbols
# that were there in GCC 8; newer ones are linked statically. The wheels run where PyTorch's do.
#
#   docker build --file release/manylinux.Dockerfile --output dist .
#   docker build --file release/manylinux.Dockerfile --build-arg PLATFORM=aarch64 --output dist .     # on such a machine
ARG PLATFORM=x86_64
FROM quay.io/pypa/manylinux_2_28_${PLATFORM} AS build
# The time that the files carry: git log -1 --format=%ct
ARG SOURCE_DATE_EPOCH=0
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
WORKDIR /src
COPY . .
RUN make wheels PYTHON=/opt/python/cp312-cp312/bin/python

FROM scratch
COPY --from=build /src/dist/ /
