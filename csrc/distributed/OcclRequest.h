#pragma once

#include <occl_transport.h>

#include <optional>
#include <string_view>

#include "distributed/CollectiveEngine.h"

// Converts PyTorch's words to those of the device's library of collectives.
namespace c10d::openreg {

// "SUM" for ReduceOp.SUM. Empty if PyTorch has no such operation.
std::string_view name_of(ReduceOp::RedOpType op);

// nullopt: the library cannot reduce elements of this type.
std::optional<occl::DataType> to_occl(at::ScalarType dtype);

occl::Reduction to_occl(const CollectiveReduction& reduction, at::ScalarType dtype);

// The buffers are those of the request's tensors.
occl::Request to_occl(const CollectiveRequest& request);

} // namespace c10d::openreg
