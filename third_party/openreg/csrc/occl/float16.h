#pragma once

#include <bit>
#include <cstdint>

// The two 16-bit floating types. They are computed in float, and each operation rounds its result to the nearest value,
// ties to the even one, as PyTorch's kernels do.
namespace occl {

class Float16 {
 public:
  Float16() = default;
  Float16(float value) : bits_(round(value)) {}

  operator float() const {
    const uint32_t sign = (bits_ & 0x8000u) << 16;
    const uint32_t exponent = bits_ & 0x7C00u;
    const uint32_t fraction = bits_ & 0x3FFu;
    if (exponent == 0) { // zero, or a subnormal number: the fraction counts units of 2^-24
      return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f));
    }
    const uint32_t bias = exponent == 0x7C00u ? 0x7F800000u - (0x7C00u << 13) : (127u - 15u) << 23;
    return std::bit_cast<float>(sign | (((exponent | fraction) << 13) + bias));
  }

 private:
  static uint16_t round(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) {
      return static_cast<uint16_t>(sign | 0x7E00u); // NaN
    }
    if (magnitude >= 0x477FF000u) { // 65520, which rounds to infinity
      return static_cast<uint16_t>(sign | 0x7C00u);
    }
    if (magnitude < 0x38800000u) { // below 2^-14: a multiple of 2^-24, which is the distance of floats from 0.5 on
      return static_cast<uint16_t>(
          sign | (std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u));
    }
    const uint32_t even = magnitude >> 13 & 1u;
    return static_cast<uint16_t>(sign | ((magnitude - ((127u - 15u) << 23) + 0xFFFu + even) >> 13));
  }

  uint16_t bits_;
};

class BFloat16 {
 public:
  BFloat16() = default;
  BFloat16(float value) : bits_(round(value)) {}

  operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits_) << 16);
  }

 private:
  static uint16_t round(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    return value != value ? 0x7FC0u : static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
  }

  uint16_t bits_;
};

} // namespace occl
