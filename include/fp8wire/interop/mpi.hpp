// SPDX-License-Identifier: Apache-2.0
/// A communicator over MPI. Needs mpi.h and the link flags of an MPI.
#ifndef FP8WIRE_INTEROP_MPI_HPP
#define FP8WIRE_INTEROP_MPI_HPP
#include <mpi.h>

#include <fp8wire/core/communicator.hpp>
#include <fp8wire/core/expects.hpp>

FP8WIRE_ABI_BEGIN

/// Borrows an MPI communicator between MPI_Init and MPI_Finalize. Counts beyond 2^31 travel in pieces.
/// Errors: those of the communicator's error handler, which ends the program unless the caller set another; a code that
/// such a handler returns throws precondition_error. Threads: as MPI was initialized.
class mpi_communicator {
 public:
  explicit mpi_communicator(MPI_Comm with = MPI_COMM_WORLD) : with_(with) {
    check(MPI_Comm_rank(with_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(with_, &size_), "MPI_Comm_size");
  }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  void all_max(u32* values, i64 count) const {
    in_pieces(count, [&](i64 from, int piece) {
      check(MPI_Allreduce(MPI_IN_PLACE, values + from, piece, MPI_UINT32_T, MPI_MAX, with_), "MPI_Allreduce");
    });
  }
  /// One broadcast a rank, since the displacements of MPI_Allgatherv are 32-bit.
  void all_gather(u8* bytes, std::span<const flat_range> ranges) const {
    detail::expect_equal(static_cast<i64>(ranges.size()), size_, "all_gather: one range for each rank");
    for (int root = 0; root < size_; ++root) {
      const flat_range& range = ranges[static_cast<std::size_t>(root)];
      in_pieces(range.length, [&](i64 from, int piece) {
        check(MPI_Bcast(bytes + range.start + from, piece, MPI_BYTE, root, with_), "MPI_Bcast");
      });
    }
  }

 private:
  template <class Send> static void in_pieces(i64 count, const Send& send) {
    constexpr i64 largest = i64{1} << 30;
    for (i64 from = 0; from < count; from += largest)
      send(from, static_cast<int>(count - from < largest ? count - from : largest));
  }
  static void check(int code, const char* call) {
    if (code != MPI_SUCCESS) detail::raise(call, code, MPI_SUCCESS);
  }
  MPI_Comm with_;
  int rank_ = 0, size_ = 1;
};
static_assert(communicator<mpi_communicator>);

FP8WIRE_ABI_END
#endif
