#include "InitCheck.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace c10::openreg::sanitizer {
namespace {

// What an operator does with the bytes of the operands that it may read.
enum class Reading {
  Uses,       // computes with all bytes
  Carries,    // copies the bytes
  Selects,    // computes with some bytes, which depend on data such as an index or a mask
  Overwrites, // as Uses, but does not read the argument that it changes, or may not read it (beta=0)
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
      {"tril", Selects},
      {"triu", Selects},
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
      {"arange", Overwrites},
      {"randperm", Overwrites},
      {"addmv", Overwrites},
      {"addmm", Overwrites},
      {"addbmm", Overwrites},
      {"baddbmm", Overwrites},
      {"addr", Overwrites},
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

Reading reading_of(const char* name) {
  static auto* const known = new std::unordered_map<const char*, Reading>(); // the sanitizer's lock guards it
  const auto [found, is_new] = known->try_emplace(name, Reading::Uses);
  if (is_new) {
    std::string_view base(name);
    if (base.rfind("aten::", 0) == 0) {
      base.remove_prefix(6);
    }
    base = base.substr(0, base.find('.'));
    if (base.size() > 1 && base.back() == '_') {
      base.remove_suffix(1);
    }
    const auto row = readings().find(base);
    if (row != readings().end()) {
      found->second = row->second;
    }
  }
  return found->second;
}

Report make_report(const Block& block, const Access& access, size_t bytes) {
  Report report{.kind = Kind::Init, .accesses = {access}, .block = block.size, .allocated = block.site};
  report.problem = c10::str(access.name, " reads ", bytes, " bytes that nobody has written since they were allocated.");
  report.remedy = "Write them first, or allocate with zeros() instead of empty().";
  return report;
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
    } else if (
        from.extent.is_dense() && to.extent.is_dense() &&
        from.extent.end - from.extent.begin <= to.extent.end - to.extent.begin) {
      source->unwritten.copy(from.extent.begin, from.extent.end, to.extent.begin, unwritten);
    } else if (missing == from.extent.run * from.extent.count_runs()) { // no byte was written
      unwritten.add(to.extent);
    }
  }
  target->unwritten.remove(to.extent);
  unwritten.for_each([&](uintptr_t begin, uintptr_t end) { target->unwritten.add(begin, end); });
}

} // namespace

void check_reads(Shadow& shadow, const char* name, const std::vector<Access>& accesses, std::vector<Report>& found) {
  const Reading reading = reading_of(name);
  if (reading != Reading::Uses && reading != Reading::Overwrites) {
    return;
  }
  for (const Access& access : accesses) {
    const bool uses = access.reads && !(reading == Reading::Overwrites && access.writes());
    Block* const block = uses ? shadow.find(access.extent.begin) : nullptr;
    const size_t bytes = block && !block->unwritten.empty() ? block->unwritten.count(access.extent) : 0;
    if (bytes != 0) {
      found.push_back(make_report(*block, access, bytes));
      block->unwritten.remove(access.extent); // so that the bytes are reported only once
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
