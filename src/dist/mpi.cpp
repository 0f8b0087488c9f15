// Ranks by MPI 3: Open MPI, MPICH, a cluster's own. Built with -DNORMSCOPE_MPI=ON.
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <utility>

#include "dist/ranks.h"

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
    MPI_Comm machine;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_size(machine, &on_this_machine_);
    MPI_Comm_free(&machine);
  }

  int on_this_machine() const override { return on_this_machine_; }

  void broadcast_bytes(void* bytes, std::size_t count, int from) const override {
    constexpr std::size_t at_once = 1 << 30;
    for (std::size_t at = 0; at < count; at += at_once)
      MPI_Bcast(static_cast<char*>(bytes) + at, static_cast<int>(std::min(count - at, at_once)), MPI_BYTE,
                from, MPI_COMM_WORLD);
  }

  void exchange_slices(const std::vector<float>& block, std::vector<float>& received) const override {
    const Slices slices = slices_of(block);
    const int mine = slices.counts[rank_];
    const std::vector<int> counts(size_, mine);
    std::vector<int> begins(size_, 0);
    for (int r = 1; r < size_; ++r) begins[r] = begins[r - 1] + mine;
    received.resize(static_cast<std::size_t>(mine) * static_cast<std::size_t>(size_));
    MPI_Alltoallv(block.data(), slices.counts.data(), slices.begins.data(), MPI_FLOAT, received.data(),
                  counts.data(), begins.data(), MPI_FLOAT, MPI_COMM_WORLD);
  }

  void gather_slices(std::vector<float>& block) const override {
    const Slices slices = slices_of(block);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, block.data(), slices.counts.data(), slices.begins.data(),
                   MPI_FLOAT, MPI_COMM_WORLD);
  }

  // mpirun kills the other processes when one ends with an exit code, so none may end while others write.
  void leave() override {
    if (std::exchange(has_left_, true)) return;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
  }

  void abort(Exit exit) override {
    if (!has_left_) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(exit));
  }

 private:
  void gather_bytes(const void* mine, std::size_t count, void* all) const override {
    const int bytes = count_of(static_cast<Index>(count));
    MPI_Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, MPI_COMM_WORLD);
  }
  std::string name() const override {
    char machine[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    MPI_Get_processor_name(machine, &length);
    return text("rank ", rank_, " on ", std::string_view(machine, static_cast<std::size_t>(length)));
  }

  struct Slices {
    std::vector<int> counts, begins;
  };
  Slices slices_of(const std::vector<float>& block) const {
    const Index n = count_of(std::ssize(block));
    Slices slices;
    for (int r = 0; r < size_; ++r) {
      slices.begins.push_back(static_cast<int>(slice_begin(n, r)));
      slices.counts.push_back(static_cast<int>(slice_begin(n, r + 1) - slice_begin(n, r)));
    }
    return slices;
  }

  int on_this_machine_ = 1;
};

}  // namespace

std::unique_ptr<Ranks> mpi_ranks() {
  auto ranks = std::make_unique<MpiRanks>();
  for (const char* launched : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* count = std::getenv(launched);
    if (ranks->size() == 1 && count != nullptr && std::atoi(count) > 1)
      refuse("mpi", "one of ", count,
             " processes, each of which MPI joins to itself alone; start them by the ",
             "mpirun of the MPI that this was built with, or by srun --mpi=pmix");
  }
  return ranks;
}

}  // namespace normscope
