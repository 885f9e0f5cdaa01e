#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_backward_ops.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_flash_attention_forward_ops.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <limits>

#include "simulator/borrowed/CpuKernel.h"
#include "simulator/borrowed/routes/Attention.h"

// The operators of fused attention that PyTorch has for CUDA alone. DTensor, context parallelism and inductor know them
// by name. One kernel computes all of them: the CPU's flash attention. It has no dropout, and refuses to have one.
//
// Rule: the results have the shapes, strides and dtypes of PyTorch's meta kernels, because compiled programs rely on
// them. The results for the state of the generator are undefined: only a kernel with dropout needs them.
namespace at::openreg {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using FlashResult = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

void refuse_debug_mask(bool return_debug_mask) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !return_debug_mask, "return_debug_mask is not supported by the ", identity.device, " device.");
}

// ---- scaled_dot_product_attention, of tensors (batch, heads, length, size of a head)

FlashResult flash_attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double dropout_p,
    bool is_causal,
    bool return_debug_mask,
    std::optional<double> scale) {
  check_devices<at::_ops::_scaled_dot_product_flash_attention>(query, key, value);
  refuse_debug_mask(return_debug_mask);
  auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      query, key, value, dropout_p, is_causal, /*attn_mask=*/std::nullopt, scale);
  const TensorOptions state = query.options().dtype(kUInt64);
  return {
      with_strides_of(out, query),
      logsumexp.contiguous(),
      Tensor(),
      Tensor(),
      query.sym_size(2),
      key.sym_size(2),
      at::empty({2}, state),
      at::empty({}, state),
      at::empty({0}, query.options())};
}

std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& out,
    const Tensor& logsumexp,
    const Tensor&,
    const Tensor&,
    c10::SymInt,
    c10::SymInt,
    double dropout_p,
    bool is_causal,
    const Tensor&,
    const Tensor&,
    std::optional<double> scale) {
  if (!grad_out.defined()) {
    return {};
  }
  auto [grad_query, grad_key, grad_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, /*attn_mask=*/std::nullopt, scale);
  return {with_strides_of(grad_query, query), with_strides_of(grad_key, key), with_strides_of(grad_value, value)};
}

// Returns `tensor` with the heads of one position side by side, as CUDA's kernel writes it.
Tensor with_heads_inside(const Tensor& tensor) {
  return tensor.transpose(1, 2).contiguous().transpose(1, 2);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>& attn_bias,
    bool compute_log_sumexp,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale) {
  check_devices<at::_ops::_scaled_dot_product_efficient_attention>(query, key, value, attn_bias);
  auto [out, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, attn_bias, scale);
  constexpr int64_t kAligned = 32; // CUDA's kernel writes the sums for whole blocks of queries
  const int64_t padding = (kAligned - query.size(2) % kAligned) % kAligned;
  const TensorOptions state = query.options().dtype(kLong);
  return {
      with_heads_inside(out),
      compute_log_sumexp ? at::constant_pad_nd(logsumexp.contiguous(), {0, padding}, kInfinity)
                         : at::empty({query.size(0), query.size(1), 0}, query.options().dtype(kFloat)),
      at::empty({}, state),
      at::empty({}, state)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_attention_backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& attn_bias,
    const Tensor& out,
    const Tensor& logsumexp,
    const Tensor&,
    const Tensor&,
    double dropout_p,
    std::array<bool, 4> grad_input_mask,
    bool is_causal,
    std::optional<double> scale) {
  refuse_gradient_of_mask(grad_input_mask);
  if (!grad_out.defined()) {
    return {};
  }
  const std::optional<Tensor> mask = attn_bias.defined() ? std::optional<Tensor>(attn_bias) : std::nullopt;
  auto [grad_query, grad_key, grad_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad_out,
      query,
      key,
      value,
      out,
      logsumexp.narrow(2, 0, query.size(2)).contiguous(),
      dropout_p,
      is_causal,
      mask,
      scale);
  return {with_heads_inside(grad_query), with_heads_inside(grad_key), with_heads_inside(grad_value), Tensor()};
}

// ---- Flash attention of sequences of different lengths: the tensors are (positions of all sequences, heads, size of a
// head), and cum_seq_q and cum_seq_k say where each sequence begins. Without them the tensors are (batch, length,
// heads, size of a head). The kernel gets the beginnings from device memory, so it computes when they are known.

struct Range {
  int64_t begin, size;
};

struct AttendedSequence {
  Range query, key;
};

struct Sequences {
  std::vector<AttendedSequence> all;
  int64_t left, right; // how far a query sees to each side of its own position; -1: to the end
};

std::vector<Range> ranges_of(const std::optional<Tensor>& cumulated, const Tensor& tensor) {
  std::vector<Range> ranges;
  if (cumulated && cumulated->defined()) {
    const Tensor begins = cumulated->to(kLong).contiguous();
    const auto* begin = begins.const_data_ptr<int64_t>();
    for (int64_t i = 0; i + 1 < begins.numel(); ++i) {
      ranges.push_back({begin[i], begin[i + 1] - begin[i]});
    }
  } else {
    for (int64_t i = 0; i < tensor.size(0); ++i) {
      ranges.push_back({i * tensor.size(1), tensor.size(1)});
    }
  }
  return ranges;
}

// Leaves out the queries that see no key. Their results stay zero. As in CUDA's kernel, the last query and the last key
// of a sequence have the same position.
Sequences sequences_of(
    const Tensor& query,
    const Tensor& key,
    const std::optional<Tensor>& cum_seq_q,
    const std::optional<Tensor>& cum_seq_k,
    bool is_causal,
    const std::optional<c10::SymInt>& window_size_left,
    const std::optional<c10::SymInt>& window_size_right,
    const std::optional<Tensor>& seqused_k) {
  const auto known = [](const std::optional<c10::SymInt>& size) {
    return size ? size->guard_int(__FILE__, __LINE__) : -1;
  };
  Sequences sequences{{}, known(window_size_left), is_causal ? 0 : known(window_size_right)};
  const std::vector<Range> queries = ranges_of(cum_seq_q, query);
  std::vector<Range> keys = ranges_of(cum_seq_k, key);
  if (seqused_k && seqused_k->defined()) {
    const Tensor used = seqused_k->to(kLong).contiguous();
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i].size = used.const_data_ptr<int64_t>()[i];
    }
  }
  TORCH_CHECK(queries.size() == keys.size(), "cum_seq_q and cum_seq_k must have the same number of sequences");
  for (size_t i = 0; i < queries.size(); ++i) {
    AttendedSequence each{queries[i], keys[i]};
    const int64_t blind =
        each.key.size == 0 ? each.query.size : each.query.size - each.key.size - std::max<int64_t>(sequences.right, 0);
    if (each.key.size == 0 || (sequences.right >= 0 && blind > 0)) {
      each.query.begin += blind;
      each.query.size -= blind;
    }
    if (each.query.size > 0) {
      sequences.all.push_back(each);
    }
  }
  return sequences;
}

// What the queries of a sequence see, as a mask that is added. nullopt: everything.
std::optional<Tensor> mask_of(const Sequences& sequences, const AttendedSequence& sequence, const Tensor& query) {
  if (sequences.left < 0 && sequences.right < 0) {
    return std::nullopt;
  }
  const TensorOptions positions = query.options().dtype(kLong);
  const Tensor distance = at::arange(sequence.key.size, positions) -
                          at::arange(sequence.query.size, positions).unsqueeze(1) -
                          (sequence.key.size - sequence.query.size);
  Tensor hidden = at::zeros(distance.sizes(), query.options().dtype(kBool));
  if (sequences.right >= 0) {
    hidden |= distance > sequences.right;
  }
  if (sequences.left >= 0) {
    hidden |= distance < -sequences.left;
  }
  return at::zeros(distance.sizes(), query.options()).masked_fill_(hidden, -kInfinity);
}

// The positions of all sequences in one dimension.
Tensor packed(const Tensor& tensor) {
  return tensor.dim() == 4 ? tensor.flatten(0, 1) : tensor;
}

// One sequence of a packed tensor, as (1, heads, length, size of a head).
Tensor part(const Tensor& tensor, const Range& range) {
  return tensor.narrow(0, range.begin, range.size).transpose(0, 1).unsqueeze(0);
}

// (heads, positions of all sequences) as the results have it: of a batch (batch, heads, length).
Tensor sums_of(const Tensor& logsumexp, const Tensor& query) {
  return query.dim() == 4 ? logsumexp.view({query.size(2), query.size(0), query.size(1)}).transpose(0, 1).contiguous()
                          : logsumexp;
}

template <class Value>
void refuse_if_given(const Value& value) {
  if constexpr (std::is_same_v<Value, std::optional<Tensor>>) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !value || !value->defined(),
        "Flash attention on the ",
        identity.device,
        " device has no alibi_slopes and no block_table: it computes with the CPU's kernel.");
  }
}

void refuse_dropout(double dropout_p) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      dropout_p == 0,
      "Flash attention on the ",
      identity.device,
      " device has no dropout: it computes with the CPU's kernel.");
}

// What computes is no kernel of PyTorch's table: CpuKernel runs it as if it were the CPU's kernel of the operator.
struct FlashForward : at::_ops::_flash_attention_forward {
  template <class... Further>
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> redispatch(
      c10::DispatchKeySet,
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const std::optional<Tensor>& cum_seq_q,
      const std::optional<Tensor>& cum_seq_k,
      const c10::SymInt&,
      const c10::SymInt&,
      double dropout_p,
      bool is_causal,
      bool return_debug_mask,
      std::optional<double> scale,
      const std::optional<c10::SymInt>& window_size_left,
      const std::optional<c10::SymInt>& window_size_right,
      const std::optional<Tensor>& seqused_k,
      const Further&... further) {
    refuse_debug_mask(return_debug_mask);
    refuse_dropout(dropout_p);
    (refuse_if_given(further), ...);
    const Tensor queries = packed(query), keys = packed(key), values = packed(value);
    Tensor out = at::zeros_like(queries, MemoryFormat::Contiguous);
    Tensor logsumexp = at::full({queries.size(1), queries.size(0)}, kInfinity, query.options().dtype(kFloat));
    const Sequences sequences =
        sequences_of(query, key, cum_seq_q, cum_seq_k, is_causal, window_size_left, window_size_right, seqused_k);
    for (const AttendedSequence& each : sequences.all) {
      auto [result, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
          part(queries, each.query),
          part(keys, each.key),
          part(values, each.key),
          0.0,
          /*is_causal=*/false,
          mask_of(sequences, each, query),
          scale);
      part(out, each.query).copy_(result);
      logsumexp.narrow(1, each.query.begin, each.query.size).copy_(sums[0]);
    }
    const TensorOptions state = query.options().dtype(kUInt64);
    return {
        with_strides_of(out.view(query.sizes()), query),
        sums_of(logsumexp, query),
        at::empty({2}, state),
        at::empty({}, state),
        at::empty({0}, query.options())};
  }
};

struct FlashBackward : at::_ops::_flash_attention_backward {
  template <class... Further>
  static std::tuple<Tensor, Tensor, Tensor> redispatch(
      c10::DispatchKeySet,
      const Tensor& grad_out,
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const Tensor& out,
      const Tensor& logsumexp,
      const Tensor& cum_seq_q,
      const Tensor& cum_seq_k,
      const c10::SymInt&,
      const c10::SymInt&,
      double dropout_p,
      bool is_causal,
      const Tensor&,
      const Tensor&,
      std::optional<double> scale,
      const std::optional<c10::SymInt>& window_size_left,
      const std::optional<c10::SymInt>& window_size_right,
      const Further&... further) {
    refuse_dropout(dropout_p);
    (refuse_if_given(further), ...);
    const Tensor queries = packed(query), keys = packed(key), values = packed(value);
    const Tensor results = packed(out), grads = packed(grad_out);
    const Tensor sums = query.dim() == 4 ? logsumexp.transpose(0, 1).flatten(1) : logsumexp;
    Tensor grad_query = at::zeros_like(queries, MemoryFormat::Contiguous);
    Tensor grad_key = at::zeros_like(keys, MemoryFormat::Contiguous);
    Tensor grad_value = at::zeros_like(values, MemoryFormat::Contiguous);
    const Sequences sequences =
        sequences_of(query, key, cum_seq_q, cum_seq_k, is_causal, window_size_left, window_size_right, std::nullopt);
    for (const AttendedSequence& each : sequences.all) {
      auto [of_query, of_key, of_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          part(grads, each.query),
          part(queries, each.query),
          part(keys, each.key),
          part(values, each.key),
          part(results, each.query),
          sums.narrow(1, each.query.begin, each.query.size).unsqueeze(0),
          0.0,
          /*is_causal=*/false,
          mask_of(sequences, each, query),
          scale);
      part(grad_query, each.query).copy_(of_query);
      part(grad_key, each.key).copy_(of_key);
      part(grad_value, each.key).copy_(of_value);
    }
    return {
        with_strides_of(grad_query.view(query.sizes()), query),
        with_strides_of(grad_key.view(key.sizes()), key),
        with_strides_of(grad_value.view(value.sizes()), value)};
  }
};

// _flash_attention_forward_no_dropout_inplace has the arguments of _flash_attention_forward, after `out`.
template <class Schema>
struct FlashInto;

template <class Result, class... Args>
struct FlashInto<Result(Args...)> {
  static Tensor call(Tensor& out, Args... args) {
    const Result results = at::_ops::_flash_attention_forward::call(args...);
    out.copy_(std::get<0>(results));
    return std::get<1>(results);
  }
};

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("_scaled_dot_product_flash_attention", flash_attention);
  m.impl("_scaled_dot_product_flash_attention_backward", flash_attention_backward);
  m.impl("_scaled_dot_product_efficient_attention", efficient_attention);
  m.impl("_scaled_dot_product_efficient_attention_backward", efficient_attention_backward);
  m.impl("_flash_attention_forward", CpuKernel<FlashForward>::call);
  m.impl("_flash_attention_backward", CpuKernel<FlashBackward>::call);
  m.impl("_flash_attention_forward_no_dropout_inplace", FlashInto<at::_ops::_flash_attention_forward::schema>::call);
}

} // namespace
} // namespace at::openreg
