// SPDX-License-Identifier: Apache-2.0
// Fibers as ThreadSanitizer sees them: threads that nothing but a barrier's address orders. Nothing without it.
#ifndef FP8WIRE_TESTS_CUDA_THREAD_SANITIZER_HPP
#define FP8WIRE_TESTS_CUDA_THREAD_SANITIZER_HPP

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>

#include <vector>

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace tsan {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool watches = true;

/// What the emulator itself reads and writes on a thread's behalf is no access of the kernel.
struct unseen {
  unseen() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~unseen() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  unseen(const unseen&) = delete;
  unseen& operator=(const unseen&) = delete;
};
/// Whoever acquires sees what everybody did who released before.
inline void release(void* at) { __tsan_release(at); }
inline void acquire(void* at) { __tsan_acquire(at); }

/// A thread to be. Making one takes longer than what most blocks do with it, so that they are used again.
class fiber {
 public:
  fiber() {
    if (idle().empty()) idle().push_back(__tsan_create_fiber(0));
    context_ = idle().back();
    idle().pop_back();
  }
  explicit fiber(void* context) : context_(context), lost_(true) {}
  ~fiber() {
    if (!lost_) idle().push_back(context_);
  }
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;
  /// To be called right before the stacks are switched. It orders nothing, and returns as another thread, which must
  /// not be seen to leave a call that it never made.
  __attribute__((no_sanitize("thread"))) void enter() const {
    __tsan_switch_to_fiber(context_, __tsan_switch_to_fiber_no_sync);
  }
  /// It stopped somewhere and is of no more use.
  void abandon() { lost_ = true; }

 private:
  static std::vector<void*>& idle() {
    static std::vector<void*> contexts;
    return contexts;
  }
  void* context_;
  bool lost_ = false;
};
inline void* current() { return __tsan_get_current_fiber(); }
#else
inline constexpr bool watches = false;

struct unseen {
  unseen() {}
};
inline void release(void*) {}
inline void acquire(void*) {}
struct fiber {
  fiber() = default;
  explicit fiber(void*) {}
  void enter() const {}
  void abandon() {}
};
inline void* current() { return nullptr; }
#endif

}  // namespace tsan
#endif
