#include <algorithm>
#include <cstring>

#include "distributed/Reduce.h"
#include "distributed/SharedEngine.h"

// The collectives of SharedEngine, in the stages that SharedEngine.h describes.
namespace c10d::openreg {
namespace {

constexpr size_t kHalf = Mailbox::kHalf;

bool reached(uint32_t counter, uint32_t stage) {
  return static_cast<int32_t>(counter - stage) >= 0;
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes != 0 && to != from) {
    std::memcpy(to, from, bytes);
  }
}

} // namespace

// One call of a collective. Each stage moves a chunk of the data of each pair of ranks; `index` counts the chunks.
class SharedEngine::Collective {
 public:
  Collective(SharedEngine& engine, Request& request, const Deadline& deadline)
      : engine_(engine), request_(request), deadline_(deadline), own_(own_plan()), plans_(engine.size_) {}

  void run();

 private:
  Plan own_plan() {
    if (!sends(engine_.rank_)) {
      request_.inputs.clear();
    }
    if (is_to_root(request_.verb) && engine_.rank_ != request_.root) {
      request_.outputs.clear();
    }
    return make_plan(request_, engine_.size_);
  }

  bool sends(int rank) const {
    return !is_from_root(request_.verb) || rank == request_.root;
  }
  const at::Tensor& input(int to) const {
    return request_.inputs[per_rank_ ? to : 0];
  }
  const at::Tensor& output(int from) const {
    return request_.outputs[request_.outputs.size() > 1 ? from : 0];
  }
  char* half(int rank, uint32_t stage) const {
    return engine_.mailboxes_[rank]->halves[stage % 2];
  }
  // Returns how many bytes of chunk `index` hold data, if the data has `bytes` bytes in all.
  size_t part(uint64_t bytes, size_t index) const {
    return std::min<uint64_t>(chunk_, bytes - std::min<uint64_t>(bytes, index * chunk_));
  }
  // The chunk that the rank `from` has for this rank.
  const char* arrived(int from, size_t index, uint32_t stage) const {
    return from == engine_.rank_ ? static_cast<const char*>(input(from).data_ptr()) + index * chunk_
                                 : half(from, stage) + (per_rank_ ? engine_.rank_ * chunk_ : 0);
  }

  void wait_for_stage(Counter& counter, uint32_t stage, int rank) {
    engine_.wait(counter, rank, deadline_, [&] { return reached(counter.value.load(), stage); });
  }
  void wait_until_others_have_taken(uint32_t stage);
  void write_inputs(size_t index, uint32_t stage);
  void wait_until_others_have_posted(uint32_t stage);
  size_t read_plans();
  bool others_wait_for_this_rank() const;
  void copy_outputs(size_t index, uint32_t stage);
  void reduce_output(size_t index, uint32_t stage);

  SharedEngine& engine_;
  Request& request_;
  const Deadline& deadline_;
  const Plan own_;
  std::vector<Plan> plans_;
  // Whether each receiver gets data of its own. In a scatter only the root has inputs.
  const bool per_rank_ = request_.inputs.size() > 1 || request_.verb == Verb::scatter;
  const size_t chunk_ = (per_rank_ ? kHalf / engine_.size_ : kHalf) / 64 * 64;
};

void SharedEngine::Collective::run() {
  Mailbox& own = *engine_.mailboxes_[engine_.rank_];
  size_t stages = 1;
  std::exception_ptr refusal;
  for (size_t index = 0; index < stages; ++index) {
    const uint32_t stage = ++engine_.stage_;
    wait_until_others_have_taken(stage - 2); // the stage that used this half before
    if (index == 0) {
      wait_until_others_have_taken(stage - 1); // the mailbox has one place for the plan, and not two
      write_plan(own_, own.plan);
    }
    write_inputs(index, stage);
    own.posted.set(stage);

    wait_until_others_have_posted(stage);
    if (index == 0) {
      stages = read_plans();
      try {
        check_plans(engine_.rank_, plans_);
      } catch (const Refusal&) {
        if (!others_wait_for_this_rank()) {
          own.taken.set(stage);
          throw;
        }
        refusal = std::current_exception();
        request_.outputs.clear();
      }
    }
    if (!request_.outputs.empty()) {
      reduces(request_.verb) && engine_.size_ > 1 ? reduce_output(index, stage) : copy_outputs(index, stage);
    }
    own.taken.set(stage);
  }
  if (refusal) {
    std::rethrow_exception(refusal);
  }
}

void SharedEngine::Collective::wait_until_others_have_taken(uint32_t stage) {
  for (int other = 0; other < engine_.size_; ++other) {
    if (other != engine_.rank_) {
      wait_for_stage(engine_.mailboxes_[other]->taken, stage, other);
    }
  }
}

void SharedEngine::Collective::write_inputs(size_t index, uint32_t stage) {
  const int pieces = request_.inputs.empty() ? 0 : per_rank_ ? engine_.size_ : 1;
  for (int to = 0; to < pieces; ++to) {
    if (!per_rank_ || to != engine_.rank_) {
      const char* const from = static_cast<const char*>(input(to).data_ptr()) + index * chunk_;
      copy(half(engine_.rank_, stage) + to * chunk_, from, part(input(to).nbytes(), index));
    }
  }
}

void SharedEngine::Collective::wait_until_others_have_posted(uint32_t stage) {
  for (int from = 0; from < engine_.size_; ++from) {
    if (from != engine_.rank_ && sends(from)) {
      wait_for_stage(engine_.mailboxes_[from]->posted, stage, from);
    }
  }
}

// Returns the number of stages of the collective.
size_t SharedEngine::Collective::read_plans() {
  uint64_t longest = 0;
  for (int from = 0; from < engine_.size_; ++from) {
    if (from == engine_.rank_) {
      plans_[from] = own_;
    } else if (sends(from)) {
      plans_[from] = read_plan(engine_.mailboxes_[from]->plan, engine_.size_);
    }
    for (const uint64_t bytes : plans_[from].sends) {
      longest = std::max(longest, bytes);
    }
  }
  return std::max<size_t>(1, (longest + chunk_ - 1) / chunk_);
}

// Whether this rank must take part in all stages even if it finds a mismatch. This is so if this rank and the root call
// the same function (a broadcast or a scatter) with the same root: the root cannot see the mismatch, and waits until
// each rank has taken each stage.
bool SharedEngine::Collective::others_wait_for_this_rank() const {
  if (!is_from_root(request_.verb)) {
    return false;
  }
  const Header& root = plans_[request_.root].header;
  return root.type == own_.header.type && root.root == own_.header.root;
}

void SharedEngine::Collective::copy_outputs(size_t index, uint32_t stage) {
  for (int from = 0; from < engine_.size_; ++from) {
    if (sends(from)) {
      char* const target = static_cast<char*>(output(from).data_ptr()) + index * chunk_;
      copy(target, arrived(from, index, stage), part(own_.expects[from], index));
    }
  }
}

// Combines the data in the order of the ranks. Only the last step writes the output: the output may share memory with
// the input, which earlier steps still read.
void SharedEngine::Collective::reduce_output(size_t index, uint32_t stage) {
  engine_.sums_.resize(kHalf);
  char* const sums = engine_.sums_.data();
  const auto type = request_.outputs[0].scalar_type();
  char* const target = static_cast<char*>(request_.outputs[0].data_ptr()) + index * chunk_;
  for (int from = 1; from < engine_.size_; ++from) {
    const auto numel = static_cast<int64_t>(part(own_.expects[from], index) / c10::elementSize(type));
    const bool is_last = from == engine_.size_ - 1;
    const char* const before = from == 1 ? arrived(0, index, stage) : sums;
    combine(request_.reduction.op, type, is_last ? target : sums, before, arrived(from, index, stage), numel);
    if (is_last) {
      finish_reduction(request_.reduction, type, target, numel);
    }
  }
}

void SharedEngine::run_collective(Request& request, const Deadline& deadline) {
  Collective(*this, request, deadline).run();
}

} // namespace c10d::openreg
