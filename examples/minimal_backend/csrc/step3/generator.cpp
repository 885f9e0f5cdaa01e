#include "generator.h"

#include <ATen/Utils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cmath>
#include <cstring>

#include "../queues.h"

namespace abacus {

void Generator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t Generator::current_seed() const {
  return seed_;
}

uint64_t Generator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void Generator::set_offset(uint64_t offset) {
  offset_ = offset;
}

uint64_t Generator::get_offset() const {
  return offset_;
}

// The state is a CPU tensor of bytes, as for each device: the seed, and the offset behind it.
c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  const at::Tensor state = at::empty({sizeof(seed_) + sizeof(offset_)}, at::kByte);
  std::memcpy(state.mutable_data_ptr(), &seed_, sizeof(seed_));
  std::memcpy(state.mutable_data_ptr<uint8_t>() + sizeof(seed_), &offset_, sizeof(offset_));
  return state.getIntrusivePtr();
}

void Generator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == sizeof(seed_) + sizeof(offset_), "RNG state is wrong size");
  const auto* const bytes = static_cast<const uint8_t*>(state.data());
  std::memcpy(&seed_, bytes, sizeof(seed_));
  std::memcpy(&offset_, bytes + sizeof(seed_), sizeof(offset_));
}

Generator* Generator::clone_impl() const {
  auto* const copy = new Generator();
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator() {
  static const at::Generator& generator = *new at::Generator(at::make_generator<Generator>());
  return generator;
}

namespace {

using at::Tensor;
using Given = std::optional<at::Generator>;

// HARDWARE: the kernel's own random numbers. This function is the finalizer of splitmix64.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A number in [0, 1), with 24 random bits.
float unit(uint64_t bits) {
  return static_cast<float>(bits & 0xffffff) * 0x1p-24f;
}

// LITERALINCLUDE START: DRAW
// Fills `self` with number(64 random bits).
template <class Number>
Tensor& draw(Tensor& self, const Given& given, Number number) {
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() == at::kFloat, "abacus draws float32, not ", self.dtype());
  auto* const generator = at::get_generator_or_default<Generator>(given, default_generator());
  const Tensor result = self.is_contiguous() ? self : at::empty_like(self, at::MemoryFormat::Contiguous);
  const int64_t count = self.numel();
  uint64_t key = 0, place = 0;
  {
    const std::lock_guard lock(generator->mutex_);
    key = mix(generator->current_seed());
    place = generator->take(count);
  }
  launch([=, out = result.mutable_data_ptr<float>()] {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = number(mix(key + place + i));
    }
  });
  if (!result.is_same(self)) {
    self.copy_(result);
  }
  return self;
}

Tensor& uniform_(Tensor& self, double from, double to, Given generator) {
  return draw(self, generator, [=](uint64_t bits) { return static_cast<float>(from + (to - from) * unit(bits)); });
}
// LITERALINCLUDE END: DRAW

Tensor& normal_(Tensor& self, double mean, double std, Given generator) {
  TORCH_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  return draw(self, generator, [=](uint64_t bits) { // Box and Muller
    const float radius = std::sqrt(-2 * std::log(1 - unit(bits))), angle = 6.2831853f * unit(bits >> 32);
    return static_cast<float>(mean + std * radius * std::cos(angle));
  });
}

Tensor& bernoulli_(Tensor& self, double p, Given generator) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return draw(self, generator, [=](uint64_t bits) { return unit(bits) < p ? 1.0f : 0.0f; });
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", uniform_);
  m.impl("normal_", normal_);
  m.impl("bernoulli_.float", bernoulli_);
}

} // namespace
} // namespace abacus
