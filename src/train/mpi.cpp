// Ranks by MPI 3: Open MPI, MPICH, a cluster's own. Built with -DNORMSCOPE_MPI=ON.
#include "train/ranks.h"

#ifdef NORMSCOPE_MPI
#include <mpi.h>

#include <algorithm>
#include <climits>

namespace normscope {
namespace {

// MPI counts in ints.
int count_of(Index items) {
  require(items <= INT_MAX, "mpi", items, " items cannot be sent at once; expected at most ", INT_MAX);
  return static_cast<int>(items);
}

// Errors of MPI itself end the job (MPI_ERRORS_ARE_FATAL): no rank can go on without the others.
class MpiRanks : public Ranks {
 public:
  MpiRanks() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  void broadcast(void* bytes, std::size_t count, int from) const override {
    constexpr std::size_t at_once = 1 << 30;
    for (std::size_t at = 0; at < count; at += at_once)
      MPI_Bcast(static_cast<char*>(bytes) + at, static_cast<int>(std::min(count - at, at_once)), MPI_BYTE,
                from, MPI_COMM_WORLD);
  }

  void exchange_slices(const std::vector<float>& numbers, std::vector<float>& received) const override {
    const Slices sent = slices_of(std::ssize(numbers));
    received.resize(Index{sent.counts[rank_]} * size_);
    const Slices got = slices_of(std::ssize(received));
    MPI_Alltoallv(numbers.data(), sent.counts.data(), sent.begins.data(), MPI_FLOAT, received.data(),
                  got.counts.data(), got.begins.data(), MPI_FLOAT, MPI_COMM_WORLD);
  }

  void gather_slices(std::vector<float>& numbers) const override {
    const Slices slices = slices_of(std::ssize(numbers));
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, numbers.data(), slices.counts.data(), slices.begins.data(),
                   MPI_FLOAT, MPI_COMM_WORLD);
  }

  // mpirun kills the other processes when one ends with an exit code, so none may end while others write.
  void leave() override {
    has_left_ = true;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
  }

  void abort(Exit exit) override { MPI_Abort(MPI_COMM_WORLD, static_cast<int>(exit)); }

 private:
  void gather_bytes(const void* mine, std::size_t count, void* all) const override {
    const int bytes = count_of(static_cast<Index>(count));
    MPI_Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, MPI_COMM_WORLD);
  }

  struct Slices {
    std::vector<int> counts, begins;
  };
  Slices slices_of(Index n) const {
    Slices slices;
    for (int r = 0; r < size_; ++r) {
      slices.begins.push_back(count_of(slice_begin(n, r)));
      slices.counts.push_back(count_of(slice_begin(n, r + 1) - slice_begin(n, r)));
    }
    return slices;
  }
};

}  // namespace

std::unique_ptr<Ranks> mpi_ranks() { return std::make_unique<MpiRanks>(); }

}  // namespace normscope
#else

std::unique_ptr<normscope::Ranks> normscope::mpi_ranks() {
  refuse("mpi", "--mpi: this build has no MPI; install one (libopenmpi-dev and openmpi-bin, or libmpich-dev ",
         "and mpich) and build with cmake -DNORMSCOPE_MPI=ON");
}

#endif
