// A build of PyTorch with CUDA generates this file. A CPU build has the other headers of c10/cuda, but not this one.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
