#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include <torch/library.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <string>

// Kernels of other packages that are compiled for GPUs, as those of a torchvision for CUDA, cannot run here. This
// library leaves them unregistered, so the dispatcher finds the device's fallback, which runs the operator's CPU kernel.
// Python code and host code for CUDA run on the device, so their kernels are registered as usual.
//
// PyTorch has no hook for this. The library therefore defines the functions of PyTorch by which C++ libraries register
// their kernels. Its symbols are global (_extensions.py), so libraries that are opened later call these definitions,
// which call PyTorch's.
namespace {

// Library has no accessor. An explicit instantiation may name a private member.
template <auto member>
struct KeyOfLibrary {
  friend std::optional<c10::DispatchKey> key_of(const torch::Library& library) {
    return library.*member;
  }
};
std::optional<c10::DispatchKey> key_of(const torch::Library& library);
template struct KeyOfLibrary<&torch::Library::dispatch_key_>;

// The linker of CUDA's toolkit puts code for GPUs into a section of this name.
bool has_gpu_code(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const auto read = [&](size_t offset, void* to, size_t size) {
    return !!file.seekg(static_cast<std::streamoff>(offset)).read(static_cast<char*>(to), size);
  };
  ElfW(Ehdr) header;
  ElfW(Shdr) names;
  if (!read(0, &header, sizeof(header)) ||
      !read(header.e_shoff + header.e_shstrndx * sizeof(names), &names, sizeof(names))) {
    return false;
  }
  std::string text(names.sh_size, '\0');
  return read(names.sh_offset, text.data(), text.size()) && text.find(".nv_fatbin") != std::string::npos;
}

struct Known {
  std::string path;
  bool has_gpu_code;
  const Known* next;
};
std::atomic<const Known*> known_libraries{}; // a list that only grows, so no thread needs a lock to read it

// A library registers many kernels, and its file is read at the first of them.
bool is_known_to_have_gpu_code(const char* path) {
  for (const Known* each = known_libraries; each != nullptr; each = each->next) {
    if (each->path == path) {
      return each->has_gpu_code;
    }
  }
  auto* const known = new Known{path, has_gpu_code(path), known_libraries};
  while (!known_libraries.compare_exchange_weak(known->next, known)) {
  }
  return known->has_gpu_code;
}

// `caller`: an address in the library that registers the kernel.
bool is_left_out(std::optional<c10::DispatchKey> key, const void* caller) {
  const bool is_kernel_of_device = key && c10::toBackendComponent(*key) == c10::BackendComponent::CUDABit &&
                                   c10::toFunctionalityKey(*key) != c10::DispatchKey::AutogradFunctionality;
  Dl_info info{};
  return is_kernel_of_device && dladdr(caller, &info) != 0 && is_known_to_have_gpu_code(info.dli_fname);
}

void* pytorchs(const char* symbol) {
  return dlsym(dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD), symbol);
}

bool is_left_out(TorchLibraryHandle library, const void* caller) {
  return is_left_out(key_of(*reinterpret_cast<const torch::Library*>(library)), caller);
}

} // namespace

namespace torch {

Library& Library::_impl(const char* name, CppFunction&& f, _RegisterOrVerify rv) & {
  static const auto original = reinterpret_cast<Library& (*)(Library*, const char*, CppFunction&&, _RegisterOrVerify)>(
      pytorchs("_ZNR5torch7Library5_implEPKcONS_11CppFunctionENS_17_RegisterOrVerifyE"));
  if (is_left_out(f.dispatch_key_ ? f.dispatch_key_ : dispatch_key_, __builtin_return_address(0))) {
    return *this;
  }
  return original(this, name, std::move(f), rv);
}

} // namespace torch

// PyTorch's stable ABI.
AOTITorchError torch_library_impl(
    TorchLibraryHandle self, const char* name, void (*fn)(StableIValue*, uint64_t, uint64_t), uint64_t version) {
  static const auto original = reinterpret_cast<decltype(&torch_library_impl)>(pytorchs("torch_library_impl"));
  return is_left_out(self, __builtin_return_address(0)) ? AOTI_TORCH_SUCCESS : original(self, name, fn, version);
}

AOTITorchError aoti_torch_library_impl(
    TorchLibraryHandle self, const char* name, void (*fn)(StableIValue*, uint64_t, uint64_t)) {
  static const auto original =
      reinterpret_cast<decltype(&aoti_torch_library_impl)>(pytorchs("aoti_torch_library_impl"));
  return is_left_out(self, __builtin_return_address(0)) ? AOTI_TORCH_SUCCESS : original(self, name, fn);
}
