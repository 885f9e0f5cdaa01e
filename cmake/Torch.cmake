# The installed PyTorch as imported targets: torch::cpu (libtorch_cpu, libc10) and torch::python (libtorch_python).
#
# find_package(Torch) is not used: for a CUDA build of PyTorch it requires the CUDA toolkit, and an extension for the
# CPU needs no part of that toolkit.
execute_process(
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/installed_torch.py
  OUTPUT_VARIABLE INSTALLED_TORCH
  ERROR_VARIABLE INSTALLED_TORCH_ERROR
  RESULT_VARIABLE INSTALLED_TORCH_RESULT)
if(NOT INSTALLED_TORCH_RESULT EQUAL 0)
  message(FATAL_ERROR "${INSTALLED_TORCH_ERROR}")
endif()
list(GET INSTALLED_TORCH 0 TORCH_ROOT)
list(GET INSTALLED_TORCH 1 TORCH_VERSION)
list(GET INSTALLED_TORCH 2 TORCHGEN_ROOT)
if(TORCH_VERSION VERSION_LESS 2.13)
  message(FATAL_ERROR "torch_openreg needs PyTorch 2.13 or later, and ${TORCH_VERSION} is installed.")
endif()
message(STATUS "PyTorch ${TORCH_VERSION} in ${TORCH_ROOT}")
# The installed files name the release alone, without +cpu or +cu130: every build of a release gives the same files.
string(REGEX REPLACE "\\+.*" "" TORCH_RELEASE "${TORCH_VERSION}")

set(NATIVE_FUNCTIONS_YAML ${TORCHGEN_ROOT}/packaged/ATen/native/native_functions.yaml)

function(add_torch_library NAME FILE)
  add_library(torch::${NAME} SHARED IMPORTED)
  set_target_properties(torch::${NAME} PROPERTIES
    IMPORTED_LOCATION ${TORCH_ROOT}/lib/${FILE}
    INTERFACE_INCLUDE_DIRECTORIES "${TORCH_ROOT}/include;${TORCH_ROOT}/include/torch/csrc/api/include")
endfunction()
add_torch_library(c10 libc10.so)
add_torch_library(cpu libtorch_cpu.so)
add_torch_library(python libtorch_python.so)
target_link_libraries(torch::cpu INTERFACE torch::c10)
target_link_libraries(torch::python INTERFACE torch::cpu)

# The compile settings of PyTorch on which its headers depend.
set(TORCH_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=1)
# With this macro PyTorch's headers include only the operators that they use. Without it they include all operators.
list(APPEND TORCH_DEFINITIONS AT_PER_OPERATOR_HEADERS)
# at::native::DispatchStub has a function pointer for each of the macros below. Without the macros, the layout and the
# symbols of the class differ from those of the installed PyTorch.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND TORCH_DEFINITIONS HAVE_AVX512_CPU_DEFINITION HAVE_AVX2_CPU_DEFINITION)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND TORCH_DEFINITIONS HAVE_SVE_CPU_DEFINITION)
endif()
# A process group names its capabilities in one set. Up to PyTorch 2.15 it has a virtual function for each of them.
# https://github.com/pytorch/pytorch/pull/193023
file(STRINGS ${TORCH_ROOT}/include/torch/csrc/distributed/c10d/Backend.hpp BACKEND_CAPABILITIES
  REGEX "BackendCapabilities")
if(BACKEND_CAPABILITIES)
  list(APPEND TORCH_DEFINITIONS C10D_HAS_BACKEND_CAPABILITIES)
endif()
target_compile_definitions(torch::c10 INTERFACE ${TORCH_DEFINITIONS})
