// SPDX-License-Identifier: Apache-2.0
/// An executor on threads that live as long as the program's work: `--threads N`.
#ifndef FP8WIRE_EXAMPLES_WORKERS_HPP
#define FP8WIRE_EXAMPLES_WORKERS_HPP
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <fp8wire/core/executor.hpp>

namespace programs {

/// run() hands jobs out one by one to `count` threads, the caller among them, or to as many as the system gives; an
/// exception is thrown again there.
/// Threads: one run() at a time.
class workers {
 public:
  explicit workers(int count) {
    try {
      for (int i = 1; i < count; ++i) threads_.emplace_back([this] { serve(); });
    } catch (const std::exception&) {
      // Fewer threads do the same work. Those that run already must not outlive what they wait on.
    }
  }
  workers(const workers&) = delete;
  workers& operator=(const workers&) = delete;
  ~workers() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  /// All processors that this process may use.
  static int available() {
    const unsigned count = std::thread::hardware_concurrency();
    return count == 0 ? 1 : static_cast<int>(count);
  }
  int count() const noexcept { return static_cast<int>(threads_.size()) + 1; }

  template <class Work> void run(fp8wire::i64 count, const Work& work) {
    if (threads_.empty() || count < 2) return fp8wire::serial{}.run(count, work);
    {
      const std::lock_guard lock(mutex_);
      call_ = [](const void* function, fp8wire::i64 job) { (*static_cast<const Work*>(function))(job); };
      function_ = &work;
      count_ = count;
      next_.store(0, std::memory_order_relaxed);
      busy_ = threads_.size();
      problem_ = nullptr;
      ++round_;
    }
    wake_.notify_all();
    take_jobs();
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return busy_ == 0; });
    if (problem_) std::rethrow_exception(problem_);
  }

 private:
  void serve() {
    fp8wire::u64 seen = 0;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || round_ != seen; });
        if (stopping_) return;
        seen = round_;
      }
      take_jobs();
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) idle_.notify_one();
    }
  }
  void take_jobs() noexcept {
    try {
      for (fp8wire::i64 job; (job = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) call_(function_, job);
    } catch (...) {
      next_.store(count_, std::memory_order_relaxed);
      const std::lock_guard lock(mutex_);
      if (!problem_) problem_ = std::current_exception();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  void (*call_)(const void*, fp8wire::i64) = nullptr;
  const void* function_ = nullptr;
  fp8wire::i64 count_ = 0;
  std::atomic<fp8wire::i64> next_ = 0;
  std::size_t busy_ = 0;
  fp8wire::u64 round_ = 0;
  bool stopping_ = false;
  std::exception_ptr problem_;
};
static_assert(fp8wire::executor<workers>);

}  // namespace programs
#endif
