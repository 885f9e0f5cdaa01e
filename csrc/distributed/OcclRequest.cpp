#include "distributed/OcclRequest.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>

namespace c10d::openreg {
namespace {

occl::ReduceOp to_occl_op(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
      return occl::ReduceOp::sum;
    case ReduceOp::PRODUCT:
      return occl::ReduceOp::product;
    case ReduceOp::MIN:
      return occl::ReduceOp::min;
    case ReduceOp::MAX:
      return occl::ReduceOp::max;
    default:
      TORCH_INTERNAL_ASSERT(false, "unexpected reduction");
  }
}

std::vector<occl::Buffer> buffers_of(const std::vector<at::Tensor>& tensors) {
  std::vector<occl::Buffer> buffers;
  for (const at::Tensor& tensor : tensors) {
    buffers.push_back({tensor.data_ptr(), tensor.nbytes()});
  }
  return buffers;
}

occl::Header header_of(const CollectiveRequest& request) {
  const bool is_message = request.verb == Verb::send || request.verb == Verb::recv;
  occl::Header header{};
  header.sequence = request.sequence;
  header.place = request.place;
  header.root = is_message ? -1 : request.root;
  header.verb = request.verb;
  header.dims = static_cast<uint8_t>(std::min<size_t>(request.shape.size(), 255));
  // A recv from any rank is compared, and described, as a recv.
  header.function = occl::Name(opTypeToString(request.verb == Verb::recv ? OpType::RECV : request.type));
  header.dataType = occl::Name(c10::toString(request.dtype));
  header.reduceOp = occl::Name(name_of(request.op));
  std::copy_n(request.shape.begin(), std::min(request.shape.size(), occl::Header::kShownDims), header.shape);
  return header;
}

} // namespace

std::string_view name_of(ReduceOp::RedOpType op) {
  constexpr const char* kNames[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return op < std::size(kNames) ? kNames[op] : "";
}

std::optional<occl::DataType> to_occl(at::ScalarType dtype) {
  switch (dtype) {
    case at::kByte:
      return occl::DataType::uint8;
    case at::kChar:
      return occl::DataType::int8;
    case at::kInt:
      return occl::DataType::int32;
    case at::kLong:
      return occl::DataType::int64;
    case at::kHalf:
      return occl::DataType::float16;
    case at::kBFloat16:
      return occl::DataType::bfloat16;
    case at::kFloat:
      return occl::DataType::float32;
    case at::kDouble:
      return occl::DataType::float64;
    default:
      return std::nullopt;
  }
}

occl::Reduction to_occl(const CollectiveReduction& reduction, at::ScalarType dtype) {
  return {to_occl_op(reduction.op), to_occl(dtype).value(), reduction.divisor};
}

occl::Request to_occl(const CollectiveRequest& request) {
  occl::Request converted{request.verb};
  converted.root = request.root;
  converted.inputs = buffers_of(request.inputs);
  converted.outputs = buffers_of(request.outputs);
  if (occl::reduces(request.verb)) {
    converted.reduction = to_occl(request.reduction, request.inputs[0].scalar_type());
  }
  converted.timeout = request.timeout;
  converted.header = header_of(request);
  return converted;
}

} // namespace c10d::openreg
