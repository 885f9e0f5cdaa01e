#pragma once

#include <string>
#include <vector>

#include "distributed/CollectiveEngine.h"

// Checks the arguments of a collective, with the messages of ProcessGroupNCCL, and converts them for an engine.
namespace c10d::openreg {

// Throws ValueError unless the tensor is dense, on the device, and contiguous in its memory format (channels_last too).
void check_tensor(const at::Tensor& tensor);

// Returns the only tensor of the list. Throws if the list does not have exactly one tensor, or if check_tensor()
// throws.
const at::Tensor& check_single(const std::vector<at::Tensor>& tensors);

// Throws unless the list has one tensor of this dtype for each of the `size` ranks.
void check_list(const std::vector<at::Tensor>& tensors, int size, at::ScalarType dtype);

void check_root(int64_t root, int size);

// A one-dimensional CPU tensor of elements of `dtype` over the bytes of a device tensor, at the address that kernels
// use (orGetKernelPointer). The result keeps the storage alive.
at::Tensor flat_view(const at::Tensor& tensor, at::ScalarType dtype);

// flat_view() with the dtype uint8, for collectives that move data of any dtype and compute nothing.
at::Tensor bytes_of(const at::Tensor& tensor);
std::vector<at::Tensor> bytes_of(const std::vector<at::Tensor>& tensors);

// Cuts `flat`, which has `rows` rows, into one piece for each rank. Rank i gets `splits[i]` rows, or `rows / size` rows
// if `splits` is empty.
std::vector<at::Tensor> pieces(const at::Tensor& flat, std::vector<int64_t> splits, int64_t rows, int size);

// How an engine computes a reduction: the type of the elements, and the operation.
struct TypedReduction {
  at::ScalarType dtype;
  CollectiveReduction reduction;
};

// Throws if the dtype or the ReduceOp is not supported. `name`: the collective that the user called, for the message.
TypedReduction reduction_of(const ReduceOp& op, const at::Tensor& tensor, int size, const char* name);

void set_reduction(CollectiveRequest& request, const ReduceOp& op, const TypedReduction& reduction);

} // namespace c10d::openreg
