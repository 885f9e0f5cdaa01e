#include "InitCheck.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace c10::openreg::sanitizer {
namespace {

// What an operator does with the bytes of the operands that it may read.
enum class Reading {
  Uses,       // computes with all bytes
  Carries,    // copies the bytes
  Selects,    // computes with some bytes, which depend on data such as an index or a mask
  Overwrites, // as Uses, but does not read the argument that it changes
  Scales,     // as Uses, but does not read its first operand if beta=0
  Sends,      // copies the bytes to other processes, whose shadow state is not known here
};

// By the operator's name, without "aten::", the name of the overload, and the underscore at the end.
const std::unordered_map<std::string_view, Reading>& readings() {
  using enum Reading;
  static const auto* const table = new std::unordered_map<std::string_view, Reading>{
      {"memcpy", Carries},
      {"copy", Carries},
      {"clone", Carries},
      {"_to_copy", Carries},
      {"contiguous", Carries},
      {"_foreach_copy", Carries},
      {"_copy_from", Carries},
      {"cat", Selects},
      {"stack", Selects},
      {"_local_scalar_dense", Uses},
      // Indices.
      {"index", Selects},
      {"index_select", Selects},
      {"gather", Selects},
      {"take", Selects},
      {"embedding", Selects},
      {"_embedding_bag", Selects},
      {"_embedding_bag_forward_only", Selects},
      {"embedding_renorm", Selects},
      {"nll_loss_forward", Selects},
      {"nll_loss2d_forward", Selects},
      {"take_along_dim", Selects},
      {"index_put", Selects},
      {"_index_put_impl", Selects},
      {"index_copy", Selects},
      {"index_fill", Selects},
      {"scatter", Selects},
      {"scatter_add", Selects},
      {"scatter_reduce", Selects},
      {"index_add", Selects},
      {"index_reduce", Selects},
      {"put", Selects},
      {"embedding_dense_backward", Selects},
      // Masks.
      {"masked_select", Selects},
      {"masked_fill", Selects},
      {"masked_scatter", Selects},
      {"where", Selects},
      {"_masked_softmax", Selects},
      // Operators with a cache and a mask, or with lengths.
      {"scaled_dot_product_attention", Selects},
      {"_scaled_dot_product_attention_math", Selects},
      {"_scaled_dot_product_flash_attention_for_cpu", Selects},
      {"_scaled_dot_product_fused_attention_overrideable", Selects},
      {"_scaled_dot_product_efficient_attention", Selects},
      {"_pack_padded_sequence", Selects},
      {"_pad_packed_sequence", Selects},
      {"_ctc_loss", Selects},
      // A part of a matrix: one triangle, or the diagonal.
      {"tril", Selects},
      {"triu", Selects},
      {"trace", Selects},
      {"linalg_cholesky_ex", Selects},
      {"cholesky", Selects},
      {"cholesky_inverse", Selects},
      {"_cholesky_solve_helper", Selects},
      {"_linalg_eigh", Selects},
      {"linalg_ldl_factor_ex", Selects},
      {"linalg_ldl_solve", Selects},
      {"linalg_solve_triangular", Selects},
      {"triangular_solve", Selects},
      // The same bytes in another order.
      {"flip", Selects},
      {"roll", Selects},
      // Writers.
      {"fill", Overwrites},
      {"zero", Overwrites},
      {"normal", Overwrites},
      {"uniform", Overwrites},
      {"random", Overwrites},
      {"bernoulli", Overwrites},
      {"exponential", Overwrites},
      {"geometric", Overwrites},
      {"cauchy", Overwrites},
      {"log_normal", Overwrites},
      {"_foreach_zero", Overwrites},
      {"memset", Overwrites},
      {"eye", Overwrites},
      {"rrelu_with_noise", Overwrites},
      {"arange", Overwrites},
      {"randperm", Overwrites},
      // beta * input + a product.
      {"addmv", Scales},
      {"addmm", Scales},
      {"addbmm", Scales},
      {"baddbmm", Scales},
      {"addr", Scales},
      // Collectives that compute nothing.
      {"occl:broadcast", Sends},
      {"occl:all_gather", Sends},
      {"occl:_all_gather_base", Sends},
      {"occl:gather", Sends},
      {"occl:scatter", Sends},
      {"occl:all_to_all", Sends},
      {"occl:send", Sends},
      {"occl:coalesced", Sends},
  };
  return *table;
}

thread_local bool beta_is_zero = false;

Reading look_up(std::string_view name) {
  if (name.rfind("aten::", 0) == 0) {
    name.remove_prefix(6);
  }
  name = name.substr(0, name.find('.'));
  if (name.size() > 1 && name.back() == '_') {
    name.remove_suffix(1);
  }
  const auto row = readings().find(name);
  return row != readings().end() ? row->second : Reading::Uses;
}

Reading reading_of(const char* name) {
  static auto* const known = new std::unordered_map<const char*, Reading>(); // the sanitizer's lock guards it
  const auto [found, is_new] = known->try_emplace(name, Reading::Uses);
  if (is_new) {
    found->second = look_up(name);
  }
  return found->second;
}

Report make_report(const Block& block, const Access& access, size_t bytes) {
  Report report{.kind = Kind::Init, .accesses = {access}, .block = block.size, .allocated = block.site};
  report.problem = c10::str(access.name, " reads ", bytes, " bytes that nobody has written since they were allocated.");
  report.remedy = "Write them first, or allocate with zeros() instead of empty().";
  return report;
}

// Adds the elements of `to` whose elements of `from` have bytes of `unwritten`. `from` is broadcast, as copy_() does it.
// Adds nothing if the shapes are not known, or if the answer would take long.
void map_elements(const Bytes& unwritten, const Access& from, const Access& to, Bytes& result) {
  const size_t dims = to.shape.size();
  if (from.shape.size() > dims) {
    return;
  }
  const size_t added = dims - from.shape.size(); // the dimensions that only `to` has
  SmallVector<int64_t, 4> strides(dims);         // of `from`, in the shape of `to`
  for (size_t i = added; i < dims; ++i) {
    const int64_t size = from.shape[i - added];
    if (size != to.shape[i] && size != 1) {
      return;
    }
    strides[i] = size == 1 ? 0 : from.strides[i - added];
  }
  const auto item = static_cast<int64_t>(from.item);
  const auto to_item = static_cast<int64_t>(to.item);
  size_t outer = dims; // how many dimensions are not part of a row: the elements of a row are contiguous in both
  int64_t row = 1;
  while (outer > 0 &&
         (to.shape[outer - 1] == 1 || (strides[outer - 1] == row * item && to.strides[outer - 1] == row * to_item))) {
    row *= to.shape[--outer];
  }
  constexpr int64_t kMostRows = int64_t{1} << 20; // takes less than a second
  int64_t rows = 1;
  for (size_t i = 0; i < outer; ++i) {
    rows *= to.shape[i];
  }
  if (rows > kMostRows) {
    return;
  }
  const auto visit = [&](const auto& self, size_t dim, uintptr_t source, uintptr_t target) -> void {
    if (dim == outer) {
      unwritten.for_each_in(source, source + row * item, [&](uintptr_t begin, uintptr_t end) {
        const uintptr_t first = (begin - source) / item, last = (end - source + item - 1) / item;
        result.add(target + first * to_item, target + last * to_item);
      });
      return;
    }
    for (int64_t i = 0; i < to.shape[dim]; ++i) {
      self(self, dim + 1, source + i * strides[dim], target + i * to.strides[dim]);
    }
  };
  visit(visit, 0, from.extent.begin, to.extent.begin);
}

// Whether byte k of `from` becomes byte k of `to`. A result of a kernel may be told as its bytes, without its shape.
bool are_alike(const Access& from, const Access& to) {
  const bool tells_shapes = !from.shape.empty() && !to.shape.empty();
  return from.extent.is_dense() && to.extent.is_dense() && from.extent.run == to.extent.run &&
         (!tells_shapes || (from.item == to.item && from.shape == to.shape && from.strides == to.strides));
}

// Makes exactly those bytes of `to` unwritten that are unwritten in `from`.
void carry(Shadow& shadow, const Access& from, const Access& to) {
  Block* const target = shadow.find(to.extent.begin);
  const Block* const source = shadow.find(from.extent.begin);
  if (!target) {
    return;
  }
  Bytes unwritten;
  if (source && source->unwritten.meets(from.extent.begin, from.extent.end)) {
    const size_t missing = source->unwritten.count(from.extent);
    if (missing == 0) {
      // all bytes of `from` are written; only bytes between them are not
    } else if (missing == from.extent.run * from.extent.count_runs()) { // no byte was written
      unwritten.add(to.extent);
    } else if (are_alike(from, to)) {
      source->unwritten.for_each_in(from.extent.begin, from.extent.end, [&](uintptr_t begin, uintptr_t end) {
        unwritten.add(to.extent.begin + begin - from.extent.begin, to.extent.begin + end - from.extent.begin);
      });
    } else {
      map_elements(source->unwritten, from, to, unwritten);
    }
  }
  target->unwritten.remove(to.extent);
  unwritten.for_each([&](uintptr_t begin, uintptr_t end) { target->unwritten.add(begin, end); });
}

} // namespace

bool has_beta(std::string_view name) {
  return look_up(name) == Reading::Scales;
}

bool exchange_beta_is_zero(bool is_zero) {
  return std::exchange(beta_is_zero, is_zero);
}

void check_reads(
    Shadow& shadow, const char* name, const std::vector<Access>& accesses, bool forgets, std::vector<Report>& found) {
  const Reading reading = reading_of(name);
  if (reading == Reading::Carries || reading == Reading::Selects || reading == Reading::Sends) {
    return;
  }
  bool ignores = reading == Reading::Scales && beta_is_zero; // the next operand that the kernel may read
  for (const Access& access : accesses) {
    const bool uses =
        access.reads && !(reading == Reading::Overwrites && access.writes()) && !std::exchange(ignores, false);
    Block* const block = uses ? shadow.find(access.extent.begin) : nullptr;
    const size_t bytes = block && !block->unwritten.empty() ? block->unwritten.count(access.extent) : 0;
    if (bytes != 0) {
      found.push_back(make_report(*block, access, bytes));
      if (forgets) {
        block->unwritten.remove(access.extent);
      }
    }
  }
}

void note_writes(Shadow& shadow, const char* name, const std::vector<Access>& accesses) {
  std::vector<const Access*> sources; // for lists: the first source belongs to the first result, and so on
  if (reading_of(name) == Reading::Carries) {
    for (const Access& access : accesses) {
      if (!access.writes()) {
        sources.push_back(&access);
      }
    }
  }
  size_t written = 0;
  for (const Access& access : accesses) {
    if (!access.writes()) {
      continue;
    }
    if (!sources.empty()) {
      carry(shadow, *sources[std::min(written++, sources.size() - 1)], access);
    } else if (Block* const block = shadow.find(access.extent.begin); block && !block->unwritten.empty()) {
      block->unwritten.remove(access.extent);
    }
  }
}

void forget_unwritten(Shadow& shadow) {
  for (auto& [begin, block] : shadow.blocks()) {
    block.unwritten = {};
  }
}

} // namespace c10::openreg::sanitizer
