// SPDX-License-Identifier: Apache-2.0
// An executor whose run() takes the work first is named as not being one.
// EXPECT: executor
// EXPECT: run\(
#include <fp8wire/core/executor.hpp>

struct backwards {
  template <class Work> void run(const Work& work, fp8wire::i64 count) {
    for (fp8wire::i64 i = 0; i < count; ++i) work(i);
  }
};
template <fp8wire::executor Executor> struct user {};

#ifdef FIXED
user<fp8wire::serial> fine;
#else
user<backwards> wrong;
#endif
