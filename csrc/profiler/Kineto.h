#pragma once

#include <libkineto.h>

#include <memory>
#include <set>
#include <string>

namespace c10::openreg {

// The plugin of Kineto: see Kineto.cpp. Registered with PyTorch.
class OpenRegProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    return name_;
  }
  const std::set<libkineto::ActivityType>& availableActivities() const override;
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<libkineto::ActivityType>& types, const libkineto::Config& config) override;
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<libkineto::ActivityType>& types, const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "openreg";
};

} // namespace c10::openreg
