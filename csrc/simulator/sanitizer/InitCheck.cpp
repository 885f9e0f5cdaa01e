#include "simulator/sanitizer/InitCheck.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace c10::openreg::sanitizer {
namespace {

// What an operator does with the bytes of the operands that it may read.
enum class Reading {
  Uses,       // computes with all bytes
  Carries,    // copies the bytes
  Copies,     // as Carries, and its target may be host memory
  Moves,      // only moves elements; begin_movement() finds where they go
  Selects,    // computes with some bytes, which depend on data such as an index or a mask
  Attends,    // as Uses, but with is_causal or a mask it reads only a part of the keys and values
  Overwrites, // as Uses, but does not read the argument that it changes
  Scales,     // as Uses, but does not read its first operand if beta=0
  Starts,     // as Uses, but if is_first_step, it writes its momentum buffers without reading them
  Sends,      // copies the bytes to other processes, whose shadow state is not known here
};

// `complete`: for an operator that Selects or Moves, the operands that it reads completely, one bit for each. The
// operands that the operator reads are numbered from bit 0; an operand that it does not read has no bit.
struct ReadingRule {
  Reading reading;
  uint32_t complete = 0;

  ReadingRule(Reading reading, uint32_t complete = 0) : reading(reading), complete(complete) {}
};
constexpr uint32_t kFirst = 1, kSecond = 2, kFourth = 8, kAllButFirst = ~1u, kAllButSecond = ~2u, kAllButThird = ~4u,
                   kAllButFirstTwo = ~3u;

// By the operator's name, without "aten::", the name of the overload, and the underscore at the end.
const std::unordered_map<std::string_view, ReadingRule>& readings() {
  using enum Reading;
  static const auto* const table = new std::unordered_map<std::string_view, ReadingRule>{
      {"memcpy", Copies},
      {"copy", Copies},
      {"clone", Carries},
      {"_to_copy", Carries},
      {"contiguous", Carries},
      {"_foreach_copy", Carries},
      {"_copy_from", Carries},
      {"cat", Moves},
      {"stack", Moves},
      {"_local_scalar_dense", Uses},
      // Indices.
      {"index", {Moves, kAllButFirst}},
      {"index_select", {Moves, kSecond}},
      {"gather", {Moves, kSecond}},
      {"take", {Moves, kSecond}},
      {"embedding", {Moves, kSecond}},
      {"_embedding_bag", Selects},
      {"_embedding_bag_forward_only", Selects},
      {"embedding_renorm", {Selects, kSecond}},
      {"nll_loss_forward", {Selects, kSecond}},
      {"nll_loss2d_forward", {Selects, kSecond}},
      {"take_along_dim", Selects},
      {"index_put", Moves}, // has a list of indices; begin_movement() gets them
      {"_index_put_impl", Moves},
      {"index_copy", {Moves, kSecond}},
      {"index_fill", {Moves, kSecond}},
      {"scatter", {Moves, kSecond}},
      {"scatter_add", {Moves, kSecond}},
      {"scatter_reduce", {Moves, kSecond}},
      {"index_add", {Moves, kAllButFirst}},
      {"index_reduce", {Moves, kAllButFirst}},
      {"put", {Moves, kSecond}},
      {"embedding_dense_backward", {Selects, kSecond}},
      {"_embedding_bag_per_sample_weights_backward", {Selects, kFirst}},
      // Positions: the elements of an image around the points of a grid.
      {"grid_sampler_2d", {Selects, kSecond}},
      {"grid_sampler_3d", {Selects, kSecond}},
      {"_grid_sampler_2d_cpu_fallback", {Selects, kSecond}},
      {"grid_sampler_2d_backward", {Selects, kAllButSecond}},
      {"grid_sampler_3d_backward", {Selects, kAllButSecond}},
      {"_grid_sampler_2d_cpu_fallback_backward", {Selects, kAllButSecond}},
      // Offsets and lengths.
      {"segment_reduce", {Selects, kAllButFirst}},
      {"_segment_reduce_backward", {Selects, kAllButThird}},
      {"_grouped_mm", {Selects, kAllButFirstTwo}},
      // Masks.
      {"masked_select", {Moves, kSecond}},
      {"masked_fill", {Moves, kSecond}},
      {"masked_scatter", {Moves, kSecond}},
      {"where", {Moves, kFirst}},
      {"_masked_softmax", Selects},
      // Operators with a cache and a mask, or with lengths.
      {"scaled_dot_product_attention", Attends},
      {"_scaled_dot_product_attention_math", Attends},
      {"_scaled_dot_product_flash_attention_for_cpu", Attends},
      {"_scaled_dot_product_fused_attention_overrideable", Attends},
      {"_scaled_dot_product_efficient_attention", Attends},
      {"_pack_padded_sequence", Selects},
      {"_pad_packed_sequence", Selects},
      {"_ctc_loss", Selects},
      // A part of a matrix: one triangle, or the diagonal.
      {"tril", Moves},
      {"triu", Moves},
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
      {"flip", Moves},
      {"roll", Moves},
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
      {"_cummax_helper", Overwrites},
      {"_cummin_helper", Overwrites},
      {"arange", Overwrites},
      {"randperm", Overwrites},
      // beta * input + a product.
      {"addmv", Scales},
      {"addmm", Scales},
      {"addbmm", Scales},
      {"baddbmm", Scales},
      {"addr", Scales},
      {"_fused_sgd", Starts},
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

thread_local std::optional<int64_t> deciding_value;
thread_local const MovedElements* moved = nullptr;

std::string_view base_of(std::string_view name) {
  if (name.rfind("aten::", 0) == 0) {
    name.remove_prefix(6);
  }
  name = name.substr(0, name.find('.'));
  if (name.size() > 1 && name.back() == '_') {
    name.remove_suffix(1);
  }
  return name;
}

ReadingRule look_up(std::string_view name) {
  const auto row = readings().find(base_of(name));
  return row != readings().end() ? row->second : ReadingRule(Reading::Uses);
}

ReadingRule row_of(const char* name) {
  static auto* const known = new std::unordered_map<const char*, ReadingRule>(); // the sanitizer's lock guards it
  const auto [found, is_new] = known->try_emplace(name, Reading::Uses);
  if (is_new) {
    found->second = look_up(name);
  }
  return found->second;
}

Report make_report(const ShadowBlock& block, const Access& access, size_t bytes) {
  Report report{.kind = FindingKind::Init, .accesses = {access}, .block = block.size, .allocated = block.site};
  report.accesses.front().action =
      Access::Action::Read; // an in-place operator also writes, but the read is the problem
  report.problem = c10::str(access.name, " reads ", bytes, " bytes that nobody has written since they were allocated.");
  report.remedy = "Write the bytes first, or allocate with zeros() instead of empty().";
  return report;
}

// Adds to `result` each element of `to` that is a copy of an element of `from` with bytes in `unwritten`. `from` is
// broadcast to the shape of `to`, as in copy_(). Adds nothing if the shapes are not known or do
// not match, or if the answer would take long.
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
  // A row is a part whose elements are contiguous in both `from` and `to`. `outer`: how many dimensions are outside of
  // a row.
  size_t outer = dims;
  int64_t row = 1;
  while (outer > 0 &&
         (to.shape[outer - 1] == 1 || (strides[outer - 1] == row * item && to.strides[outer - 1] == row * to_item))) {
    row *= to.shape[--outer];
  }
  int64_t rows = 1;
  for (size_t i = 0; i < outer; ++i) {
    rows *= to.shape[i];
  }
  if (rows > kMostElements) {
    return;
  }
  const auto map_row = [&](const std::array<uintptr_t, 2>& addresses) {
    const auto [source, target] = addresses;
    unwritten.for_each_in(source, source + row * item, [&](uintptr_t begin, uintptr_t end) {
      const uintptr_t first = (begin - source) / item, last = (end - source + item - 1) / item;
      result.add(target + first * to_item, target + last * to_item);
    });
  };
  for_each_element<2>(
      IntArrayRef(to.shape).slice(0, outer), {strides, to.strides}, {from.extent.begin, to.extent.begin}, map_row);
}

// Whether byte k of `from` becomes byte k of `to`. If one access has no strides, only the extents are compared: a
// kernel may name a result as bytes, without a shape, and orMemcpy() gives no strides.
bool are_alike(const Access& from, const Access& to) {
  const bool tells_strides = !from.strides.empty() && !to.strides.empty();
  return from.extent.is_dense() && to.extent.is_dense() && from.extent.run == to.extent.run &&
         (!tells_strides || (from.item == to.item && from.shape == to.shape && from.strides == to.strides));
}

// Makes exactly those bytes of `to` unwritten that are unwritten in `from`.
void carry(Shadow& shadow, const Access& from, const Access& to) {
  ShadowBlock* const target = shadow.find(to.extent.begin);
  const ShadowBlock* const source = shadow.find(from.extent.begin);
  if (!target) {
    return;
  }
  Bytes unwritten;
  if (source && source->unwritten.overlaps(from.extent.begin, from.extent.end)) {
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

// Makes those elements of `to` unwritten that are unwritten in `moved`, and makes the others written.
void place(Shadow& shadow, const MovedElements& moved, const Access& to) {
  ShadowBlock* const target = shadow.find(to.extent.begin);
  if (!target) {
    return;
  }
  target->unwritten.remove(to.extent);
  const size_t count = moved.unwritten.size();
  const bool is_whole = to.shape.empty(); // a new result is named as bytes
  if (count == 0 || (is_whole ? to.extent.run % count != 0 : to.shape != moved.shape)) {
    return;
  }
  const size_t item = is_whole ? to.extent.run / count : to.item;
  auto strides = is_whole ? moved.strides : to.strides;
  if (is_whole) {
    std::for_each(strides.begin(), strides.end(), [&](int64_t& stride) { stride *= static_cast<int64_t>(item); });
  }
  size_t next = 0;
  for_each_element<1>(moved.shape, {strides}, {to.extent.begin}, [&](const std::array<uintptr_t, 1>& addresses) {
    if (moved.unwritten[next++]) {
      target->unwritten.add(addresses[0], addresses[0] + item);
    }
  });
}

// Whether the target of a copy lies in a block that the sanitizer knows. Pageable memory lies in no block.
bool has_target(Shadow& shadow, const std::vector<Access>& accesses) {
  return std::any_of(accesses.begin(), accesses.end(), [&](const Access& access) {
    return access.writes() && shadow.find(access.extent.begin);
  });
}

// What begin_movement() knows of the operator; null: nothing.
const MovedElements* movement_of(Reading reading, const char* name) {
  return reading == Reading::Moves && moved && base_of(moved->name) == base_of(name) ? moved : nullptr;
}

// Whether attention has the operand attn_mask or attn_bias, behind the queries, keys and values.
bool has_mask(const std::vector<Access>& accesses) {
  return std::count_if(accesses.begin(), accesses.end(), [](const Access& access) { return access.reads; }) > 3;
}

} // namespace

const char* deciding_argument(std::string_view name) {
  const Reading reading = look_up(name).reading;
  return reading == Reading::Scales    ? "beta"
         : reading == Reading::Attends ? "is_causal"
         : reading == Reading::Starts  ? "is_first_step"
                                       : nullptr;
}

bool moves_elements(std::string_view name) {
  return look_up(name).reading == Reading::Moves;
}

const MovedElements* exchange_moved_elements(const MovedElements* elements) {
  return std::exchange(moved, elements);
}

std::optional<int64_t> exchange_deciding_argument(std::optional<int64_t> value) {
  return std::exchange(deciding_value, value);
}

bool computes_with_all_bytes(std::string_view name, bool writes) {
  const Reading reading = look_up(name).reading;
  return reading == Reading::Uses || (reading == Reading::Overwrites && !writes);
}

void check_read(ShadowBlock& block, const Access& access, bool forgets, std::vector<Report>& found) {
  const size_t bytes = block.unwritten.empty() ? 0 : block.unwritten.count(access.extent);
  if (bytes != 0) {
    found.push_back(make_report(block, access, bytes));
    if (forgets) {
      block.unwritten.remove(access.extent);
    }
  }
}

void check_reads(
    Shadow& shadow, const char* name, const std::vector<Access>& accesses, bool forgets, std::vector<Report>& found) {
  const auto [reading, complete] = row_of(name);
  if (reading == Reading::Carries || reading == Reading::Sends ||
      (reading == Reading::Copies && has_target(shadow, accesses))) {
    return;
  }
  uint32_t checked = ~0u;
  if (reading == Reading::Selects || reading == Reading::Moves) {
    checked = complete;
  } else if (reading == Reading::Scales && deciding_value == 0) {
    checked = kAllButFirst;
  } else if (reading == Reading::Attends && (deciding_value != 0 || has_mask(accesses))) {
    checked = kFirst | kFourth;
  } else if (reading == Reading::Starts && deciding_value != 0) {
    checked = 0;
  }
  const MovedElements* const movement = movement_of(reading, name);
  const auto is_index = [&](const Access& access) {
    return movement && std::count(movement->indices.begin(), movement->indices.end(), access.extent.begin) > 0;
  };
  for (const Access& access : accesses) {
    if (!access.reads) {
      continue;
    }
    const bool uses = ((checked & kFirst) && !(reading == Reading::Overwrites && access.writes())) || is_index(access);
    checked = (checked >> 1) | (checked & 0x80000000u); // the last bit stands for all further operands
    if (ShadowBlock* const block = uses ? shadow.find(access.extent.begin) : nullptr) {
      check_read(*block, access, forgets, found);
    }
  }
}

void note_writes(Shadow& shadow, const char* name, const std::vector<Access>& accesses) {
  const Reading reading = row_of(name).reading;
  const MovedElements* const movement = movement_of(reading, name);
  std::vector<const Access*> sources; // for lists: the first source belongs to the first result, and so on
  if (movement && movement->keeps_first) {
    sources.push_back(&accesses.front());
  } else if (reading == Reading::Carries || reading == Reading::Copies) {
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
    } else if (movement) {
      place(shadow, *movement, access);
    } else if (ShadowBlock* const block = shadow.find(access.extent.begin); block && !block->unwritten.empty()) {
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
