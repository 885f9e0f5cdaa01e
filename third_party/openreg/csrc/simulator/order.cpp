#include "simulator/order.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "hooks.h"
#include "scheduler_state.h"
#include "simulator/last_resort.h"

// OPENREG_ORDER: the order of work in orExecutionChaos is printed, saved, or that of a saved file. Each line of the order
// is a call that queues something (launch, record, wait, graph), or an item of a stream (run; show: the completion of
// deferred work shows; force: the item did not begin by the schedule). Then come the number of the stream, the number of
// the thread of the host (0: the device) and the name of the kernel. The first use gives a stream or a thread its number.
namespace openreg {
namespace {

using Clock = std::chrono::steady_clock;

// How long a replay waits for the thread whose call is next: it may sleep, or compute.
constexpr std::chrono::seconds kPatience{30};

constexpr std::string_view kHeader = "# order of openreg, version 1";

struct OrderLine {
  std::string what;
  int stream;
  int thread;
  std::string name;
};

std::string textOf(const OrderLine& line) {
  return line.what + " " + std::to_string(line.stream) + " " + std::to_string(line.thread) + " " + line.name;
}

const char* orNone(const char* name) {
  return name != nullptr ? name : "-";
}

// Whether a stream or thread with `number` may be the one that a line means. `used`: how many numbers are given.
bool matches(int number, int used, int wanted) {
  return number == wanted || (number == 0 && wanted == used + 1);
}

void give(int& number, int& used) {
  number = number != 0 ? number : ++used;
}

class OrderWriter final : public Order {
 public:
  explicit OrderWriter(std::FILE* file) : file_(file) {
    std::setvbuf(file, nullptr, _IOLBF, BUFSIZ); // so that the file of a program that dies is whole
    std::fprintf(file, "%s\n", kHeader.data());
  }

  void call(Locked&, const StreamPtr& stream, const char* what, const char* name) override {
    give(stream->orderNumber, streams_);
    give(thisThread.orderNumber, threads_);
    write({what, stream->orderNumber, thisThread.orderNumber, orNone(name)});
  }

  void advance(Locked&, const Stream& stream, const char* what, const char* name) override {
    write({what, stream.orderNumber, 0, orNone(name)});
  }

 private:
  void write(const OrderLine& line) {
    std::fprintf(file_, "%s\n", textOf(line).c_str());
  }

  std::FILE* const file_;
  int streams_ = 0;
  int threads_ = 0;
};

class OrderReplay final : public Order {
 public:
  OrderReplay(std::string file, std::vector<OrderLine> lines) : file_(std::move(file)), lines_(std::move(lines)) {}

  void call(Locked& locked, const StreamPtr& stream, const char* what, const char* name) override {
    const auto isTurn = [&] {
      if (next_ == lines_.size()) {
        give(stream->orderNumber, streams_);
        stop("the program goes on with: " + textOf({what, stream->orderNumber, thisThread.orderNumber, orNone(name)}));
      }
      const OrderLine& line = lines_[next_];
      const bool isThreads = matches(thisThread.orderNumber, threads_, line.thread);
      const bool isCall =
          line.what == what && line.name == orNone(name) && matches(stream->orderNumber, streams_, line.stream);
      if (thisThread.orderNumber != 0 && isThreads && !isCall) {
        stop("the thread calls: " + textOf({what, stream->orderNumber, thisThread.orderNumber, orNone(name)}));
      }
      return isThreads && isCall;
    };
    if (!isTurn()) {
      waiting_.push_back(stream);
      watchForLastResort();
      sleepUntil(locked, *stream, true, isTurn);
      waiting_.erase(std::find(waiting_.begin(), waiting_.end(), stream));
    }
    give(stream->orderNumber, streams_);
    give(thisThread.orderNumber, threads_);
    goOn(locked);
  }

  void advance(Locked& locked, const Stream&, const char*, const char*) override {
    goOn(locked);
  }

  bool isReplay() const override {
    return true;
  }

  bool isNext(const Stream& stream) const override {
    if (next_ == lines_.size()) {
      stop("the program has more work");
    }
    return lines_[next_].thread == 0 && lines_[next_].stream == stream.orderNumber;
  }

  bool holdsCalls() const override {
    return !waiting_.empty();
  }

  void stuck() override {
    if (Clock::now() - wentOnAt_ >= kPatience) {
      end();
    }
  }

  void end() override {
    if (next_ < lines_.size()) {
      stop("the program does not come to it");
    }
  }

 private:
  void goOn(Locked& locked) {
    ++next_;
    wentOnAt_ = Clock::now();
    for (const StreamPtr& stream : waiting_) {
      locked.wakeLater(stream);
    }
  }

  [[noreturn]] void stop(const std::string& reason) const {
    const std::string line = next_ < lines_.size() ? "\"" + textOf(lines_[next_]) + "\"" : "the end";
    std::fflush(nullptr);
    std::fprintf(
        stderr,
        "openreg: the replay of %s stops at line %zu, %s, because %s\n",
        file_.c_str(),
        next_ + 2, // after the header, counted from 1
        line.c_str(),
        reason.c_str());
    _exit(1);
  }

  const std::string file_;
  const std::vector<OrderLine> lines_;
  size_t next_ = 0;
  Clock::time_point wentOnAt_ = Clock::now();
  int streams_ = 0;
  int threads_ = 0;
  std::vector<StreamPtr> waiting_; // those of the threads that wait for their turn
};

// A rank of a distributed program has a file of its own: the name ends in the rank.
std::string fileOfRank(std::string_view name) {
  const char* const rank = std::getenv("RANK");
  return std::string(name) + (rank != nullptr ? std::string(".") + rank : "");
}

// Returns whether the file is an order.
bool readLines(std::istream& file, std::vector<OrderLine>& lines) {
  std::string text;
  if (!std::getline(file, text) || text != kHeader) {
    return false;
  }
  while (std::getline(file, text)) {
    std::istringstream words(text);
    OrderLine line;
    if (!(words >> line.what >> line.stream >> line.thread >> std::ws) || !std::getline(words, line.name)) {
      return false;
    }
    lines.push_back(std::move(line));
  }
  return true;
}

} // namespace

std::string readOrder() {
  constexpr std::string_view kSave = "save:";
  constexpr std::string_view kReplay = "replay:";
  const char* const value = std::getenv("OPENREG_ORDER");
  const std::string_view text = value != nullptr ? value : "";
  const auto wrong = [&](const std::string& reason) { return "OPENREG_ORDER=\"" + std::string(text) + "\"" + reason; };
  if (text.empty()) {
    return {};
  }
  if (text == "print") {
    order = new OrderWriter(stderr); // orders live until the process ends
  } else if (text.starts_with(kSave)) {
    std::FILE* const file = std::fopen(fileOfRank(text.substr(kSave.size())).c_str(), "we");
    if (file == nullptr) {
      return wrong(std::string(": no file can be written there: ") + std::strerror(errno));
    }
    order = new OrderWriter(file);
  } else if (text.starts_with(kReplay)) {
    std::string name = fileOfRank(text.substr(kReplay.size()));
    std::ifstream file(name);
    std::vector<OrderLine> lines;
    if (!readLines(file, lines)) {
      return wrong(": " + name + " is not a file that OPENREG_ORDER=save:FILE has written");
    }
    order = new OrderReplay(std::move(name), std::move(lines));
  } else {
    return wrong(" is not valid: expected print, save:FILE or replay:FILE");
  }
  return {};
}

} // namespace openreg
