"""C++ extensions whose host code uses CUDA are compiled for the name cuda, and run on the simulated device."""

from __future__ import annotations

import textwrap
from pathlib import Path

import programs
import pytest
from cuda_builds import AS_CUDA
from programs import Run

pytestmark = AS_CUDA

# Without torch/extension.h, which takes the compiler half a minute.
SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <torch/library.h>

#include <sstream>

namespace {

using c10::cuda::getCurrentCUDAStream;
namespace allocator = c10::cuda::CUDACachingAllocator;

at::Tensor copy(const at::Tensor& from) {
  const c10::cuda::CUDAGuard guard(from.device());
  at::Tensor to = at::empty_like(from);
  const cudaStream_t stream = getCurrentCUDAStream();
  const auto kind = cudaMemcpyDeviceToDevice;
  C10_CUDA_CHECK(cudaMemcpyAsync(to.data_ptr(), from.const_data_ptr(), from.nbytes(), kind, stream));
  C10_CUDA_CHECK(cudaStreamSynchronize(stream));
  return to;
}

int64_t device_in_guard(int64_t index) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  int device = -1;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  return device;
}

std::string stream_guard() {
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(true, 1);
  const c10::cuda::CUDAStreamGuard guard(stream);
  TORCH_CHECK(getCurrentCUDAStream() == stream && guard.original_stream() != stream);
  std::ostringstream text;
  text << getCurrentCUDAStream();
  TORCH_CHECK(text.str() == "stream " + std::to_string(stream.id()) + " on device cuda:1", text.str());
  return std::to_string(stream.priority()) + (stream.query() ? " idle" : " busy");
}

int64_t current_stream() {
  return reinterpret_cast<int64_t>(getCurrentCUDAStream().stream());
}

double milliseconds(const at::Tensor& x) {
  at::cuda::CUDAEvent start(cudaEventDefault), end(cudaEventDefault);
  start.record();
  x.add_(1);
  end.record(getCurrentCUDAStream());
  end.block(c10::cuda::getStreamFromPool());
  end.synchronize();
  return start.elapsed_time(end);
}

std::string properties() {
  const cudaDeviceProp* const found = at::cuda::getCurrentDeviceProperties();
  TORCH_CHECK(found == at::cuda::getDeviceProperties(c10::cuda::current_device()));
  std::ostringstream text;
  text << found->name << ' ' << found->major << '.' << found->minor << ' ' << at::cuda::warp_size();
  return text.str();
}

int64_t allocated(int64_t size) {
  const auto bytes = [] { return allocator::getDeviceStats(0).allocated_bytes[0].current; };
  const int64_t before = bytes();
  const at::DataPtr data = allocator::get()->allocate(size);
  void* const raw = allocator::raw_alloc_with_stream(size, getCurrentCUDAStream());
  const int64_t after = bytes();
  allocator::recordStream(data, c10::cuda::getStreamFromPool());
  allocator::raw_delete(raw);
  float* beside = nullptr; // not the allocator's
  AT_CUDA_CHECK(cudaMalloc(&beside, 1 << 20));
  AT_CUDA_CHECK(cudaFree(beside));
  return after - before;
}

std::string errors() {
  const cudaError_t returned = cudaSetDevice(99);
  const cudaError_t last = cudaGetLastError();
  std::ostringstream text;
  text << cudaGetErrorName(returned) << ": " << cudaGetErrorString(returned) << ", " << cudaGetErrorName(last) << ", "
       << cudaGetErrorName(cudaGetLastError());
  return text.str();
}

void wrong_device() {
  C10_CUDA_CHECK(cudaSetDevice(99));
}

void blas_handle() {
  at::cuda::getCurrentCUDABlasHandle();
}

void snapshot() {
  allocator::snapshot();
}

} // namespace

TORCH_LIBRARY(host_code, library) {
  library.def("copy", copy).def("device_in_guard", device_in_guard).def("stream_guard", stream_guard);
  library.def("current_stream", current_stream).def("milliseconds", milliseconds).def("properties", properties);
  library.def("allocated", allocated).def("errors", errors).def("wrong_device", wrong_device);
  library.def("blas_handle", blas_handle).def("snapshot", snapshot);
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("with_cuda", [None, True], ids=["as for the CPU", "with_cuda"])
def test_host_code_uses_streams_guards_events_memory_and_errors(
    run_python: Run, tmp_path: Path, with_cuda: object
) -> None:
    program = f"""
    import sys, torch
    from torch.utils.cpp_extension import CUDA_HOME, load_inline
    load_inline(
        "host_code", sys.argv[1], build_directory=sys.argv[2], is_python_module=False, no_implicit_headers=True,
        with_cuda={with_cuda}, extra_cflags=["-O0"],
    )
    ops = torch.ops.host_code

    def error_of(function):
        try:
            function()
        except Exception as error:
            return f"{{type(error).__name__}}: {{str(error).splitlines()[0]}}"

    x = torch.arange(3.0, device="cuda:1")
    print(ops.copy(x).tolist(), ops.copy(x).device)
    print(ops.device_in_guard(1), torch.cuda.current_device(), CUDA_HOME)
    print(ops.stream_guard())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        print(ops.current_stream() == stream.cuda_stream != 0)
    print(ops.current_stream())
    print(ops.milliseconds(x) >= 0, x.tolist())
    print(ops.properties())
    print(ops.allocated(1000), torch.cuda.memory_allocated())
    print(ops.errors())
    print(error_of(ops.wrong_device))
    print(error_of(ops.blas_handle))
    print(error_of(ops.snapshot))
    """
    done = run_python(textwrap.dedent(program), SOURCE, tmp_path, TORCH_OPENREG_AS="cuda", status=0)
    assert done.stdout.splitlines() == [
        "[0.0, 1.0, 2.0] cuda:1",
        "1 0 None",
        "-1 idle",
        "True",
        "0",
        "True [1.0, 2.0, 3.0]",
        "OpenReg simulated accelerator 8.0 32",
        "2048 0",
        "cudaErrorInvalidDevice: invalid device ordinal, cudaErrorInvalidDevice, cudaSuccess",
        "AcceleratorError: CUDA error: orSetDevice: device is 99, but must be from 0 to 1; OPENREG_DEVICE_COUNT and "
        "OPENREG_VISIBLE_DEVICES give the number of devices (orErrorInvalidDevice from wrong_device)",
        "RuntimeError: at::cuda::getCurrentCUDABlasHandle() is not available: the simulated device computes with the "
        "CPU's kernels, without cuBLAS.",
        "NotImplementedError: c10::cuda::CUDACachingAllocator::snapshot() is not available in C++ for the simulated "
        "device: call torch.cuda.memory.",
    ]


MODULE = """
#include <Python.h>
#include <cuda_runtime_api.h>
#include <c10/cuda/CUDAFunctions.h>

static PyObject* devices(PyObject*, PyObject*) {
  int count = 0;
  C10_CUDA_CHECK(cudaGetDeviceCount(&count));
  return PyLong_FromLong(10 * count + c10::cuda::device_count());
}
static PyMethodDef methods[] = {{"devices", devices, METH_NOARGS, nullptr}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "counting", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_counting() { return PyModule_Create(&definition); }
"""
SETUP = """
import sys
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

sys.argv[1:] = ["-q", "build_ext", "--inplace"]
setup(
    name="counting",
    ext_modules=[CUDAExtension("counting", ["counting.cpp"], extra_compile_args=["-O0"])],
    cmdclass={"build_ext": BuildExtension},
)
"""


@pytest.mark.slow
def test_a_module_that_setuptools_builds_as_a_cuda_extension_is_imported(run_python: Run, tmp_path: Path) -> None:
    (tmp_path / "counting.cpp").write_text(MODULE)
    run_python(SETUP, TORCH_OPENREG_AS="cuda", status=0)
    program = "import torch, counting; print(counting.devices())"
    assert run_python(program, TORCH_OPENREG_AS="cuda", status=0).stdout == "22\n"


def test_a_source_in_cudas_cpp_is_refused_as_without_a_toolkit(run_python: Run, tmp_path: Path) -> None:
    program = """
    import sys
    from torch.utils.cpp_extension import load_inline
    try:
        load_inline("kernels", "", cuda_sources="__global__ void kernel() {}", build_directory=sys.argv[1])
    except OSError as error:
        print(error)
    """
    done = run_python(
        textwrap.dedent(program), tmp_path, TORCH_OPENREG_AS="cuda", CUDA_HOME="/usr/local/cuda", status=0
    )
    assert done.stdout == (
        f"CUDA_HOME environment variable is not set. Nothing compiles the CUDA C++ of {tmp_path}/cuda.cu for the "
        "simulated device.\n"
    )


PACKAGED = r"""
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/stable/library.h>
#include <torch/library.h>

namespace {

at::Tensor on_cpu(const at::Tensor& x) {
  return x.mul(2);
}

at::Tensor on_gpu(const at::Tensor&) {
  TORCH_CHECK(false, "this kernel is for CUDA");
}

void stable_on_gpu(StableIValue*, uint64_t, uint64_t) {
  TORCH_CHECK(false, "this kernel is for CUDA");
}

at::Tensor for_autograd(const at::Tensor& x) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("packaged::wrapped", "");
  return op.typed<at::Tensor(const at::Tensor&)>().call(x).mul(10);
}

} // namespace

TORCH_LIBRARY(packaged, library) {
  for (const char* name : {"plain", "stable", "stable_since_2_9", "wrapped", "later", "for_gpus"}) {
    library.def((std::string(name) + "(Tensor x) -> Tensor").c_str());
  }
}
TORCH_LIBRARY_IMPL(packaged, CUDA, library) {
  library.impl("plain", on_gpu).impl("wrapped", on_gpu).impl("for_gpus", on_gpu);
}
STABLE_TORCH_LIBRARY_IMPL(packaged, CUDA, library) {
  library.impl("stable", &stable_on_gpu);
}
const AOTITorchError registered = [] {
  TorchLibraryHandle library = nullptr; // its registrations end with the process
  aoti_torch_library_init_impl("packaged", "CUDA", __FILE__, __LINE__, &library);
  return aoti_torch_library_impl(library, "stable_since_2_9", &stable_on_gpu);
}();
TORCH_LIBRARY_IMPL(packaged, AutogradCUDA, library) {
  library.impl("wrapped", for_autograd);
}
TORCH_LIBRARY_IMPL(packaged, CPU, library) {
  for (const char* name : {"plain", "stable", "stable_since_2_9", "wrapped", "later"}) {
    library.impl(name, on_cpu);
  }
}

extern "C" void register_later() {
  static torch::Library library(torch::Library::IMPL, "packaged", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library.impl("later", on_gpu);
}
"""
USE = """
import ctypes, os, sys, torch

torch.ops.load_library(sys.argv[1])
library = ctypes.CDLL(sys.argv[1])
os.rename(sys.argv[1], f"{sys.argv[1]}.moved")  # what the library is was read when it registered its first kernel
library.register_later()
torch.library.define("packaged::in_python", "(Tensor x) -> Tensor")
for key, text in (("cpu", "the CPU's"), ("cuda", "CUDA's")):
    torch.library.impl("packaged::in_python", key, lambda x, text=text: print(text) or x)
x = torch.ones(2, device="cuda:1")
for name in ("plain", "stable", "stable_since_2_9", "wrapped", "later", "for_gpus", "in_python"):
    try:
        result = getattr(torch.ops.packaged, name)(x)
        print(name, result.tolist(), result.device)
    except RuntimeError as error:
        print(name, str(error).splitlines()[0])
"""


@pytest.mark.slow
def test_the_cpus_kernels_stand_in_for_kernels_that_are_compiled_for_gpus(run_python: Run, tmp_path: Path) -> None:
    program = """
    import sys
    from torch.utils.cpp_extension import load_inline
    load_inline(
        "packaged", sys.argv[1], build_directory=sys.argv[2], is_python_module=False, no_implicit_headers=True,
        extra_cflags=["-O0"],
    )
    """
    run_python(textwrap.dedent(program), PACKAGED, tmp_path, TORCH_OPENREG_AS="cuda", status=0)
    host_code, gpu_code = tmp_path / "packaged.so", tmp_path / "with_gpu_code.so"
    # As the linker of CUDA's toolkit does.
    programs.run("objcopy", "--add-section", f".nv_fatbin={__file__}", host_code, gpu_code, status=0)

    use = {"TORCH_OPENREG_AS": "cuda", "status": 0}
    names = ("plain", "stable", "stable_since_2_9", "wrapped", "later", "for_gpus")
    assert run_python(USE, host_code, **use).stdout.splitlines() == [
        *(f"{name} this kernel is for CUDA" for name in names),
        "CUDA's",
        "in_python [1.0, 1.0] cuda:1",
    ]
    assert run_python(USE, gpu_code, **use).stdout.splitlines() == [
        "plain [2.0, 2.0] cuda:1",
        "stable [2.0, 2.0] cuda:1",
        "stable_since_2_9 [2.0, 2.0] cuda:1",
        "wrapped [20.0, 20.0] cuda:1",
        "later [2.0, 2.0] cuda:1",
        "for_gpus Could not run 'packaged::for_gpus' with arguments from the 'CUDA' backend: the operator has no CPU "
        "kernel that the device could run, and the device has no kernel of its own.",
        "CUDA's",
        "in_python [1.0, 1.0] cuda:1",
    ]
