#include <algorithm>
#include <cstring>
#include <exception>

#include "occl/communicator.h"

// The collectives of SharedCommunicator, in the stages that communicator.h describes.
namespace occl {
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
class SharedCommunicator::Collective {
 public:
  Collective(SharedCommunicator& group, Request& request, const Deadline& deadline)
      : group_(group), request_(request), deadline_(deadline), own_(ownPlan()), plans_(group.size_) {}

  void run();

 private:
  Plan ownPlan() {
    if (!sends(group_.rank_)) {
      request_.inputs.clear();
    }
    if (isToRoot(request_.verb) && group_.rank_ != request_.root) {
      request_.outputs.clear();
    }
    return makePlan(request_, group_.size_);
  }

  bool sends(int rank) const {
    return !isFromRoot(request_.verb) || rank == request_.root;
  }
  const Buffer& input(int to) const {
    return request_.inputs[perRank_ ? to : 0];
  }
  const Buffer& output(int from) const {
    return request_.outputs[request_.outputs.size() > 1 ? from : 0];
  }
  char* half(int rank, uint32_t stage) const {
    return group_.mailboxes_[rank]->halves[stage % 2];
  }
  // Returns how many bytes of chunk `index` hold data, if the data has `bytes` bytes in all.
  size_t part(uint64_t bytes, size_t index) const {
    return std::min<uint64_t>(chunk_, bytes - std::min<uint64_t>(bytes, index * chunk_));
  }
  // The chunk that the rank `from` has for this rank.
  const char* arrived(int from, size_t index, uint32_t stage) const {
    return from == group_.rank_ ? static_cast<const char*>(input(from).data) + index * chunk_
                                : half(from, stage) + (perRank_ ? group_.rank_ * chunk_ : 0);
  }

  void waitForStage(Counter& counter, uint32_t stage, int rank) {
    group_.wait(counter, rank, deadline_, [&] { return reached(counter.value.load(), stage); });
  }
  void waitUntilOthersHaveTaken(uint32_t stage);
  void writeInputs(size_t index, uint32_t stage);
  void waitUntilOthersHavePosted(uint32_t stage);
  size_t readPlans();
  void checkOtherRoots(uint32_t stage) const;
  bool othersWaitForThisRank() const;
  void copyOutputs(size_t index, uint32_t stage);
  void reduceOutput(size_t index, uint32_t stage);

  SharedCommunicator& group_;
  Request& request_;
  const Deadline& deadline_;
  const Plan own_;
  std::vector<Plan> plans_;
  // Whether each receiver gets data of its own. In a scatter only the root has inputs.
  const bool perRank_ = request_.inputs.size() > 1 || request_.verb == Verb::scatter;
  const size_t chunk_ = (perRank_ ? kHalf / group_.size_ : kHalf) / 64 * 64;
};

void SharedCommunicator::Collective::run() {
  Mailbox& own = *group_.mailboxes_[group_.rank_];
  size_t stages = 1;
  std::exception_ptr mismatch;
  for (size_t index = 0; index < stages; ++index) {
    const uint32_t stage = ++group_.stage_;
    waitUntilOthersHaveTaken(stage - 2); // the stage that used this half before
    if (index == 0) {
      waitUntilOthersHaveTaken(stage - 1); // the mailbox has one place for the plan, and not two
      writePlan(own_, own.plan);
    }
    writeInputs(index, stage);
    own.posted.set(stage);

    waitUntilOthersHavePosted(stage);
    if (index == 0) {
      stages = readPlans();
      try {
        checkPlans(group_.rank_, plans_);
        checkOtherRoots(stage);
      } catch (const Error&) { // all ranks find a mismatch in the same stage, so their counters agree
        if (!othersWaitForThisRank()) {
          own.taken.set(stage);
          throw;
        }
        mismatch = std::current_exception();
        request_.outputs.clear();
      }
    }
    if (!request_.outputs.empty()) {
      if (reduces(request_.verb) && group_.size_ > 1) {
        reduceOutput(index, stage);
      } else {
        copyOutputs(index, stage);
      }
    }
    own.taken.set(stage);
  }
  if (mismatch) {
    std::rethrow_exception(mismatch);
  }
}

void SharedCommunicator::Collective::waitUntilOthersHaveTaken(uint32_t stage) {
  for (int other = 0; other < group_.size_; ++other) {
    if (other != group_.rank_) {
      waitForStage(group_.mailboxes_[other]->taken, stage, other);
    }
  }
}

void SharedCommunicator::Collective::writeInputs(size_t index, uint32_t stage) {
  const int pieces = request_.inputs.empty() ? 0 : perRank_ ? group_.size_ : 1;
  for (int to = 0; to < pieces; ++to) {
    if (!perRank_ || to != group_.rank_) {
      const char* const from = static_cast<const char*>(input(to).data) + index * chunk_;
      copy(half(group_.rank_, stage) + to * chunk_, from, part(input(to).bytes, index));
    }
  }
}

void SharedCommunicator::Collective::waitUntilOthersHavePosted(uint32_t stage) {
  for (int from = 0; from < group_.size_; ++from) {
    if (from != group_.rank_ && sends(from)) {
      waitForStage(group_.mailboxes_[from]->posted, stage, from);
    }
  }
}

// Returns the number of stages of the collective.
size_t SharedCommunicator::Collective::readPlans() {
  uint64_t longest = 0;
  for (int from = 0; from < group_.size_; ++from) {
    if (from == group_.rank_) {
      plans_[from] = own_;
    } else if (sends(from)) {
      plans_[from] = readPlan(group_.mailboxes_[from]->plan, group_.size_);
    }
    for (const uint64_t bytes : plans_[from].sends) {
      longest = std::max(longest, bytes);
    }
  }
  return std::max<size_t>(1, (longest + chunk_ - 1) / chunk_);
}

// Two ranks that both send as the root of one call would not read each other's plan. Each posts its plan before it looks
// for the other's, so at least the one that comes later finds two roots.
void SharedCommunicator::Collective::checkOtherRoots(uint32_t stage) const {
  if (!checksHeaders() || !isFromRoot(request_.verb) || request_.root != group_.rank_) {
    return;
  }
  for (int other = 0; other < group_.size_; ++other) {
    // The plan stays until this rank has taken the stage.
    if (other != group_.rank_ && reached(group_.mailboxes_[other]->posted.value.load(), stage)) {
      const Header header = readPlan(group_.mailboxes_[other]->plan, group_.size_).header;
      if (header.function == own_.header.function && header.root == other) {
        throwMismatch(group_.rank_, own_.header, other, header);
      }
    }
  }
}

// Whether this rank must take part in all stages even if it finds a mismatch. This is so if this rank and the root call
// the same function (a broadcast or a scatter) with the same root: the root cannot see the mismatch, and waits until
// each rank has taken each stage.
bool SharedCommunicator::Collective::othersWaitForThisRank() const {
  if (!isFromRoot(request_.verb)) {
    return false;
  }
  const Header& root = plans_[request_.root].header;
  return root.function == own_.header.function && root.root == own_.header.root;
}

void SharedCommunicator::Collective::copyOutputs(size_t index, uint32_t stage) {
  for (int from = 0; from < group_.size_; ++from) {
    if (sends(from)) {
      char* const target = static_cast<char*>(output(from).data) + index * chunk_;
      copy(target, arrived(from, index, stage), part(own_.expects[from], index));
    }
  }
}

// Combines the data in the order of the ranks. Only the last step writes the output: the output may share memory with
// the input, which earlier steps still read.
void SharedCommunicator::Collective::reduceOutput(size_t index, uint32_t stage) {
  group_.sums_.resize(kHalf);
  char* const sums = group_.sums_.data();
  const Reduction& how = request_.reduction;
  char* const target = static_cast<char*>(request_.outputs[0].data) + index * chunk_;
  for (int from = 1; from < group_.size_; ++from) {
    const size_t count = part(own_.expects[from], index) / sizeOf(how.type);
    const bool isLast = from == group_.size_ - 1;
    const char* const before = from == 1 ? arrived(0, index, stage) : sums;
    combine(how, isLast ? target : sums, before, arrived(from, index, stage), count);
    if (isLast) {
      finishReduction(how, target, count);
    }
  }
}

void SharedCommunicator::runCollective(Request& request, const Deadline& deadline) {
  Collective(*this, request, deadline).run();
}

} // namespace occl
