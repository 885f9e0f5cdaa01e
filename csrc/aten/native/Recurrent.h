#pragma once

#include <ATen/core/Tensor.h>

// Fused LSTM and GRU cells. PyTorch's RNNs call them on every PrivateUse1 device, and the CPU has none (its RNNs take
// another path), so a backend must supply them: written here in terms of other operators.
namespace at::openreg {

// hy, cy, and the activated gates, which the backward needs.
std::tuple<Tensor, Tensor, Tensor> _thnn_fused_lstm_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& cx,
    const std::optional<Tensor>& input_bias,
    const std::optional<Tensor>& hidden_bias);
// Gradients of the gates, cx and the bias.
std::tuple<Tensor, Tensor, Tensor> _thnn_fused_lstm_cell_backward_impl(
    const std::optional<Tensor>& grad_hy,
    const std::optional<Tensor>& grad_cy,
    const Tensor& cx,
    const Tensor& cy,
    const Tensor& workspace,
    bool has_bias);

// hy, and what the backward needs: the activated gates, hx, and the hidden part of the new gate.
std::tuple<Tensor, Tensor> _thnn_fused_gru_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& hx,
    const std::optional<Tensor>& input_bias,
    const std::optional<Tensor>& hidden_bias);
// Gradients of the input's and the hidden gates, hx, and both biases.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> _thnn_fused_gru_cell_backward(
    const Tensor& grad_hy, const Tensor& workspace, bool has_bias);

} // namespace at::openreg
