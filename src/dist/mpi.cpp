// Ranks by MPI 3: Open MPI, MPICH, a cluster's own. Built with -DNORMSCOPE_MPI=ON.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "dist/communicator.h"

namespace normscope {
namespace {

// MPI counts in ints. Blocks of parameters go by the line, so that 2^31 lines of 16 floats are the limit.
int count_of(Index items) {
  require(items <= INT_MAX, "mpi", items, " items cannot be sent at once");
  return static_cast<int>(items);
}

class ItemType {
 public:
  explicit ItemType(Index bytes) {
    MPI_Type_contiguous(count_of(bytes), MPI_BYTE, &type_);
    MPI_Type_commit(&type_);
  }
  ~ItemType() { MPI_Type_free(&type_); }
  operator MPI_Datatype() const { return type_; }

 private:
  MPI_Datatype type_;
};

// Errors of MPI itself end the job (MPI_ERRORS_ARE_FATAL): no rank can go on without the others.
class MpiRanks : public Communicator {
 public:
  MpiRanks() {
    if (const char* limit = std::getenv("NORMSCOPE_MPI_TIMEOUT")) {
      const std::string_view given = limit;
      const auto [end, error] = std::from_chars(given.begin(), given.end(), longest_wait_);
      if (error != std::errc() || end != given.end() || !(longest_wait_ >= 1))
        refuse("NORMSCOPE_MPI_TIMEOUT", "got ", given, "; expected seconds, 1 or more");
    }
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    for (std::vector<int>* each : {&counts_, &begins_, &sent_, &sent_begins_}) each->resize(size_);
  }

  std::string machine() const override {
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    MPI_Get_processor_name(name, &length);
    return std::string(name, length);
  }

  using Communicator::complete;
  void complete(void* items, Index bytes_per_item, std::span<const Index> cut) override {
    for (std::size_t r = 0; r < counts_.size(); ++r) {
      counts_[r] = count_of(cut[r + 1] - cut[r]);
      begins_[r] = count_of(cut[r]);
    }
    const ItemType item(bytes_per_item);
    MPI_Request request;
    MPI_Iallgatherv(MPI_IN_PLACE, 0, item, items, counts_.data(), begins_.data(), item, MPI_COMM_WORLD,
                    &request);
    wait(request);
  }

  void exchange(const float* block, std::span<const Index> cut, std::span<const Index> place,
                float* parts) override {
    const int mine = count_of(cut[rank_ + 1] - cut[rank_]);
    for (std::size_t r = 0; r < counts_.size(); ++r) {
      sent_[r] = place[rank_] >= 0 ? count_of(cut[r + 1] - cut[r]) : 0;
      sent_begins_[r] = count_of(cut[r]);
      counts_[r] = place[r] >= 0 ? mine : 0;
      begins_[r] = place[r] >= 0 ? count_of(place[r]) : 0;
    }
    const ItemType line(floats_per_line * sizeof(float));
    MPI_Request request;
    MPI_Ialltoallv(block, sent_.data(), sent_begins_.data(), line, parts, counts_.data(), begins_.data(),
                   line, MPI_COMM_WORLD, &request);
    wait(request);
  }

  // mpirun kills the other processes when one ends with an exit code, so none may end while others write.
  void leave() override {
    if (std::exchange(has_left_, true)) return;
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    wait(request);
    MPI_Finalize();
  }

  void abort(Exit exit) override {
    if (!has_left_) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(exit));
  }

 private:
  // Ends the job if another rank has died unnoticed by its launcher (srun without --kill-on-bad-exit, a lost
  // network), rather than waiting for ever.
  void wait(MPI_Request request) {
    const double begin = MPI_Wtime();
    for (int done = 0;;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done) return;
      sched_yield();  // another rank may need this core to get here
      if (MPI_Wtime() - begin < longest_wait_) continue;
      std::cerr << text("[mpi] rank ", rank_, " on ", machine(), ": no word from another rank for ",
                        longest_wait_, " s; the job ends, its last checkpoint is whole; ",
                        "NORMSCOPE_MPI_TIMEOUT sets the seconds\n");
      abort(Exit::failure);
    }
  }

  double longest_wait_ = 1800;  // seconds: the first rank may take long to write a checkpoint
  std::vector<int> counts_, begins_, sent_, sent_begins_;
};

// The number of processes that the launcher started; 0 if unknown.
int launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const char* count = std::getenv(name)) return std::atoi(count);
  }
  return 0;
}

}  // namespace

std::unique_ptr<Communicator> mpi_ranks() {
  auto ranks = std::make_unique<MpiRanks>();
  const int started = launched();
  if (ranks->size() > 1 || started <= 1) return ranks;
  ranks->leave();
  refuse("mpi", "this is one of ", started, " processes, but MPI joins each to itself alone; start them by ",
         "the mpirun of the MPI that this was built with, or by srun --mpi=pmix");
}

}  // namespace normscope
