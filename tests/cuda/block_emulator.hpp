// SPDX-License-Identifier: Apache-2.0
// Runs kernel bodies on the CPU: every thread of a block is a fiber that runs until it waits for others. Each access to
// shared memory is checked for races and for bytes that nobody wrote, each access to global memory for bounds and
// alignment. Blocks run one after another, the threads in an order that changes at every barrier. Under ThreadSanitizer
// it looks for the races, in shared and in global memory: fibers are threads to it that only barriers order.
#ifndef FP8WIRE_TESTS_CUDA_BLOCK_EMULATOR_HPP
#define FP8WIRE_TESTS_CUDA_BLOCK_EMULATOR_HPP
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <fp8wire/quant/kernel/element.hpp>

#include "bulk_copies.hpp"
#include "thread_sanitizer.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator {

using checks::device_memory;
using checks::fault;
using checks::shared_shadow;
using fp8wire::i64;
using fp8wire::u16;
using fp8wire::u32;
using fp8wire::u64;
using fp8wire::u8;

/// What a launch did, for tests that count.
struct counters {
  u64 loads = 0, load_bytes = 0, stores = 0, store_bytes = 0, barriers = 0;
};

/// The threads of one block at a time.
class thread_block {
 public:
  thread_block(int threads, device_memory& memory, unsigned seed)
      : memory_(memory), fibers_(static_cast<std::size_t>(threads)), random_(seed), copies_(memory, shadow_) {
    order_.resize(fibers_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<int>(i);
    for (fiber& f : fibers_) f.stack.reset(new char[stack_bytes]);
    warps_.resize((fibers_.size() + 31) / 32);
  }

  /// Runs body(thread) as every thread. `shared` is the block's shared memory, whose contents do not survive.
  template <class Body> void run(void* shared, std::size_t shared_bytes, const Body& body) {
    shared_ = static_cast<u8*>(shared);
    std::memset(shared, 0xCD, shared_bytes);
    shadow_.reset(shared_bytes);
    copies_.reset(shared_, fibers_.size(), true);
    call_ = [](const void* context, int thread) { (*static_cast<const Body*>(context))(thread); };
    body_ = &body;
    alive_ = static_cast<int>(fibers_.size());
    barrier_ = {};
    meetings_ = 0;
    for (gathering& w : warps_) w = {};
    error_ = nullptr;
    for (std::size_t i = 0; i < fibers_.size(); ++i) start(static_cast<int>(i));
    tsan::release(&begun_);
    const tsan::unseen hidden;
    while (alive_ > 0 && !error_) {
      std::shuffle(order_.begin(), order_.end(), random_);
      bool moved = false;
      for (const int i : order_) {
        const progress& state = fibers_[static_cast<std::size_t>(i)].state;
        if (state != progress::ready && state != progress::asking) continue;
        resume(i);
        moved = moved || state != progress::asking;
        if (error_) break;
      }
      if (!moved && !copies_.land()) throw fault("threads wait for a barrier that others never reach");
    }
    tsan::acquire(&ended_);
    if (error_) {
      for (fiber& f : fibers_) f.seen.abandon();
      std::rethrow_exception(error_);
    }
    copies_.finish();
  }

  int current() const { return current_; }
  counters count;
  i64 blocks = 1;  // of the launch

  /// Barrier of the block. Answers whether any thread said yes.
  bool sync(bool yes, int line) {
    const tsan::unseen hidden;
    ++count.barriers;
    // Two addresses by turns: a thread that is at the next barrier already orders nothing for those at this one.
    char* const here = &met_[meetings_ % 2];
    tsan::release(here);
    gather(barrier_, line);
    barrier_.any = barrier_.any || yes;
    const bool* answer = wait(barrier_, static_cast<int>(fibers_.size()), true);
    tsan::acquire(here);
    return *answer;
  }
  /// One value of every lane of the warp; all lanes meet at the same call.
  std::array<u64, 32> exchange(u64 value, int line) {
    const tsan::unseen hidden;
    gathering& warp = warps_[static_cast<std::size_t>(current_ / 32)];
    const int lanes = std::min<int>(32, static_cast<int>(fibers_.size()) - current_ / 32 * 32);
    gather(warp, line);
    warp.given[current_ % 32] = value;
    wait(warp, lanes, false);
    // A copy for each thread: the warp may meet again before this one looks.
    fiber& self = fibers_[static_cast<std::size_t>(current_)];
    return self.taken;
  }

  void touch_shared(const void* at, std::size_t bytes, bool write, bool atomic = false) {
    const tsan::unseen hidden;
    copies_.touch(place(at), bytes, current_, write);
    shadow_.touch(place(at), bytes, current_, write, atomic);
  }
  u64 place(const void* at) const { return static_cast<u64>(static_cast<const u8*>(at) - shared_); }
  checks::bulk_copies& copies() { return copies_; }
  /// Waits for a phase of an mbarrier; others go on.
  void wait_for(u64 barrier, u32 parity) {
    const tsan::unseen hidden;
    while (!copies_.over(barrier, parity, current_)) {
      fibers_[static_cast<std::size_t>(current_)].state = progress::asking;
      yield();
    }
    fibers_[static_cast<std::size_t>(current_)].state = progress::ready;
  }
  void touch_global(const void* at, std::size_t bytes, bool write) {
    const tsan::unseen hidden;
    memory_.access(at, bytes, write);
    ++(write ? count.stores : count.loads);
    (write ? count.store_bytes : count.load_bytes) += bytes;
  }

 private:
  static constexpr std::size_t stack_bytes = 128 << 10;
  enum class progress : u8 { ready, waiting, asking, done };
  struct fiber {
    std::unique_ptr<char[]> stack;
    ucontext_t context;
    progress state = progress::done;
    std::array<u64, 32> taken;
    tsan::fiber seen;
    bool answer = false;
  };
  struct gathering {
    int arrived = 0;
    bool any = false;
    int line = 0;
    u64 given[32] = {};
    std::vector<int> here;
  };
  static void gather(gathering& g, int line) {
    if (g.arrived == 0) g.line = line;
    else if (g.line != line)
      throw fault("threads met at different barriers: lines " + std::to_string(g.line) + " and " +
                  std::to_string(line));
  }
  const bool* wait(gathering& g, int all, bool whole_block) {
    fiber& self = fibers_[static_cast<std::size_t>(current_)];
    g.here.push_back(current_);
    if (++g.arrived == all) {
      for (const int i : g.here) {
        fiber& f = fibers_[static_cast<std::size_t>(i)];
        std::copy(g.given, g.given + 32, f.taken.begin());
        f.answer = g.any;
        f.state = progress::ready;
      }
      g = {};
      if (whole_block) {
        ++meetings_;
        shadow_.barrier();
        copies_.met();
      }
    } else {
      self.state = progress::waiting;
      yield();
    }
    return &self.answer;
  }

  // These two never return on their last way, which must not look like calls of ever greater depth.
  __attribute__((no_sanitize("thread"))) static void enter(unsigned low, unsigned high, int thread) {
    auto* self = reinterpret_cast<thread_block*>(static_cast<std::uintptr_t>(u64{high} << 32 | low));
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &self->main_stack_, &self->main_bytes_);
#endif
    tsan::acquire(&self->begun_);
    try {
      self->call_(self->body_, thread);
    } catch (...) {
      if (!self->error_) self->error_ = std::current_exception();
    }
    self->fibers_[static_cast<std::size_t>(thread)].state = progress::done;
    --self->alive_;
    tsan::release(&self->ended_);
    self->switch_to_main(true);
  }
  void start(int thread) {
    fiber& f = fibers_[static_cast<std::size_t>(thread)];
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = stack_bytes;
    f.context.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&f.context, reinterpret_cast<void (*)()>(reinterpret_cast<void*>(&enter)), 3,
                static_cast<unsigned>(self), static_cast<unsigned>(u64{self} >> 32), thread);
    f.state = progress::ready;
  }
  void resume(int thread) {
    current_ = thread;
    fiber& f = fibers_[static_cast<std::size_t>(thread)];
#if defined(__SANITIZE_ADDRESS__)
    void* fake;
    __sanitizer_start_switch_fiber(&fake, f.stack.get(), stack_bytes);
#endif
    f.seen.enter();
    swapcontext(&main_, &f.context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  }
  void yield() { switch_to_main(false); }
  __attribute__((no_sanitize("thread"))) void switch_to_main(bool last) {
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(last ? nullptr : &fake, main_stack_, main_bytes_);
#endif
    static_cast<void>(last);
    main_seen_.enter();
    swapcontext(&fibers_[static_cast<std::size_t>(current_)].context, &main_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, &main_stack_, &main_bytes_);
#endif
  }

  device_memory& memory_;
  std::vector<fiber> fibers_;
  std::vector<int> order_;
  std::mt19937 random_;
  std::vector<gathering> warps_;
  gathering barrier_;
  shared_shadow shadow_{tsan::watches};
  checks::bulk_copies copies_;
  u8* shared_ = nullptr;
  int current_ = 0, alive_ = 0;
  ucontext_t main_;
  tsan::fiber main_seen_{tsan::current()};
  std::size_t meetings_ = 0;
  char begun_ = 0, ended_ = 0, met_[2] = {};  // addresses that order
  void (*call_)(const void*, int) = nullptr;
  const void* body_ = nullptr;
  std::exception_ptr error_;
#if defined(__SANITIZE_ADDRESS__)
  const void* main_stack_ = nullptr;
  std::size_t main_bytes_ = 0;
#endif
};

/// The context of one thread on no particular device. Conversions are the formats' own.
struct any_context {
  thread_block& all;
  int rank;
  i64 number;

  // __builtin_LINE and not std::source_location, which clang 14 lacks.
  int thread() const { return rank; }
  i64 block() const { return number; }
  i64 blocks() const { return all.blocks; }
  void sync(int line = __builtin_LINE()) { all.sync(false, line); }
  bool sync_or(bool yes, int line = __builtin_LINE()) { return all.sync(yes, line); }
  u32 warp_max(u32 value, int line = __builtin_LINE()) {
    const auto lanes = all.exchange(value, line);
    return static_cast<u32>(*std::max_element(lanes.begin(), lanes.end()));
  }
  int warp_count(bool yes, int line = __builtin_LINE()) {
    const auto lanes = all.exchange(yes ? 1 : 0, line);
    return static_cast<int>(std::count(lanes.begin(), lanes.end(), u64{1}));
  }
  u64 from_lane(u64 value, int lane, int line = __builtin_LINE()) {
    return all.exchange(value, line)[static_cast<std::size_t>(lane)];
  }

  template <class Value> Value load(const Value* at) {
    all.touch_global(at, sizeof(Value), false);
    Value value;
    std::memcpy(&value, at, sizeof(Value));
    return value;
  }
  template <class Value> void store(Value* at, const Value& value) {
    all.touch_global(at, sizeof(Value), true);
    std::memcpy(at, &value, sizeof(Value));
  }
  template <class Value> Value read(const Value* at) {
    all.touch_shared(at, sizeof(Value), false);
    Value value;
    std::memcpy(&value, at, sizeof(Value));
    return value;
  }
  template <class Value> void write(Value* at, const Value& value) {
    all.touch_shared(at, sizeof(Value), true);
    std::memcpy(at, &value, sizeof(Value));
  }
  void shared_max(u32* at, u32 value) {
    all.touch_shared(at, 4, true, true);
    change(at, value, [](u32 a, u32 b) { return std::max(a, b); });
  }
  void global_max(u32* at, u32 value) {
    all.touch_global(at, 4, true);
    change(at, value, [](u32 a, u32 b) { return std::max(a, b); });
  }
  void global_min(u64* at, u64 value) {
    all.touch_global(at, 8, true);
    change(at, value, [](u64 a, u64 b) { return std::min(a, b); });
  }
  void global_add(u64* at, u64 value) {
    all.touch_global(at, 8, true);
    change(at, value, [](u64 a, u64 b) { return a + b; });
  }

  static constexpr bool bulk_copies = true;
  void arm(u64* barrier) {
    const tsan::unseen hidden;
    all.copies().init(all.place(barrier), 1, rank);
    all.copies().fence(rank);
  }
  void fetch(void* to, const void* from, int bytes, u64* barrier) {
    const tsan::unseen hidden;
    tsan::release(barrier);
    all.copies().arrive(all.place(barrier), static_cast<u64>(bytes), rank);
    all.copies().fetch(all.place(to), from, static_cast<u64>(bytes), all.place(barrier), rank);
    ++all.count.loads;
    all.count.load_bytes += static_cast<u64>(bytes);
  }
  void wait(u64* barrier, u32 parity) {
    all.wait_for(all.place(barrier), parity);
    tsan::acquire(barrier);
  }
  void show() {
    const tsan::unseen hidden;
    all.copies().fence(rank);
  }
  void send(void* to, const void* from, int bytes) {
    const tsan::unseen hidden;
    all.copies().send(to, all.place(from), static_cast<u64>(bytes), rank);
    all.copies().commit(rank);
    ++all.count.stores;
    all.count.store_bytes += static_cast<u64>(bytes);
  }
  void sent() {
    const tsan::unseen hidden;
    all.copies().wait(0, true, rank);
  }
  void finish() {
    const tsan::unseen hidden;
    all.copies().wait(0, false, rank);
  }

  static u32 max_halves(u32 a, u32 b) {
    return std::max(a & 0xFFFF, b & 0xFFFF) | std::max(a >> 16, b >> 16) << 16;
  }
  static void multiply2(float a, float b, float by_a, float by_b, float& first, float& second) {
    first = fp8wire::ieee::mul(a, by_a);
    second = fp8wire::ieee::mul(b, by_b);
  }
  static float widen(fp8wire::fp16 half) { return fp8wire::to_float(half); }
  template <class Element> static u32 convert2(float low, float high) {
    return Element::encode(low) | static_cast<u32>(Element::encode(high)) << 8;
  }
  template <class Element> static void values2(u32 codes, float& low, float& high) {
    low = Element::decode(static_cast<u8>(codes));
    high = Element::decode(static_cast<u8>(codes >> 8));
  }

 private:
  template <class Value, class Change> static void change(Value* at, Value by, const Change& changed) {
    Value before = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &before, changed(before, by), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  }
};

template <int VectorBytes> struct context : any_context {
  static constexpr int vector_bytes = VectorBytes;
};

/// Launches `blocks` blocks of a body. Context: which device; its vector_bytes are that device's widest load.
template <class Body, class Context = context<16>>
counters launch(i64 blocks, const typename Body::params& params, device_memory& memory, unsigned seed = 1) {
  using shared = typename Body::template shared<Context::vector_bytes>;
  thread_block threads(Body::threads, memory, seed);
  threads.blocks = blocks;
  const auto storage = std::make_unique<shared>();
  for (i64 number = 0; number < blocks; ++number) {
    threads.run(storage.get(), sizeof(shared), [&](int thread) {
      Context c{{threads, thread, number}};
      Body::run(c, *storage, params);
    });
  }
  return threads.count;
}

}  // namespace emulator
#endif
