#include "simulator/borrowed/random/Distributions.h"

#include <c10/util/MathConstants.h>

namespace at::openreg {

void Normal::make(const PhiloxWords& words, int count, Values<float>& values) {
  // An angle: a word times 2 pi / 2^32, in the middle of its interval. cuRAND's constants.
  constexpr float kTurn = 2.3283064e-10f * 6.2831855f;
  for (int i = 0; i < count; i += 2) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float radius = std::sqrt(-2.0f * std::log(Uniform::of(words[i][lane])));
      const float angle =
          static_cast<float>(static_cast<double>(static_cast<float>(words[i + 1][lane])) * kTurn + kTurn / 2);
      values[i][lane] = std::sin(angle) * radius;
      if (i + 1 < count) {
        values[i + 1][lane] = std::cos(angle) * radius;
      }
    }
  }
}

void NormalDouble::make(const PhiloxWords& words, int count, Values<double>& values) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const double radius = std::sqrt(-2.0 * std::log(UniformDouble::of(words[0][lane], words[1][lane])));
    const double half_turns = 2 * UniformDouble::of(words[2][lane], words[3][lane]); // in (0, 2]
    const double quarters = std::nearbyint(2 * half_turns);
    const double rest = c10::pi<double> * (half_turns - quarters / 2); // exact before the product
    const double sines[] = {std::sin(rest), std::cos(rest), -std::sin(rest), -std::cos(rest)};
    const auto quarter = static_cast<int>(quarters);
    values[0][lane] = sines[quarter % 4] * radius;
    if (count > 1) {
      values[1][lane] = sines[(quarter + 1) % 4] * radius;
    }
  }
}

} // namespace at::openreg
